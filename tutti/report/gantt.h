// A Gantt chart: what happened when, in lanes over a common time.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tutti/report/plot.h"

namespace tutti::report {

inline constexpr int kIdle = -2;  // the colour of spans in which nothing happens: pale

struct Span {
  double begin = 0;  // seconds, from any origin
  double end = 0;
  std::string label;  // shown where the pointer rests
  int color = -1;     // its own or kIdle; else the lane's
};

struct Lane {
  std::string name;
  std::vector<Span> spans;  // may overlap
  int color = 0;
};

struct Gantt {
  std::string id, title, subtitle;
  std::vector<Lane> lanes;
  std::vector<Mark> marks;  // moments worth a line through all lanes
  // Where spans have colours of their own; only those that occur are shown.
  std::vector<std::pair<std::string, int>> legend = {};
  bool wide = true;
};

// Time starts at 0 with the first span. Spans nearer to each other than a pixel or so are drawn as
// one block, the paler the less of it they fill, so the page stays small; each colour by itself.
std::string draw(const Gantt& gantt);

}  // namespace tutti::report
