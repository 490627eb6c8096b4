// Curves over a common x.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/report/plot.h"

namespace tutti::report {

struct Curve {
  enum class Style { line, dots };  // dots are joined by a thin line; many are a line
  std::string name;
  std::vector<double> x;  // ascending
  std::vector<double> y;  // as many; a curve has a gap where it is not finite
  int color = 0;
  Style style = Style::line;
  bool smoothed = false;  // draws an exponential mean (series.h) over a faint curve
};

struct LineChart {
  std::string id;  // unique on the page; letters, digits, dashes
  std::string title;
  std::string subtitle;
  std::string x_name = "step";
  Quantity x_quantity = Quantity::integer;
  Quantity y_quantity = Quantity::number;
  std::vector<Curve> curves;
  std::vector<Mark> horizontal;  // a target
  std::vector<Mark> vertical;    // resumes
  bool from_zero = false;
  bool offers_log = false;
  bool wide = false;           // over the whole width of the page
  double tokens_per_step = 0;  // > 0: the readout shows tokens next to the step
  size_t points = 1000;        // per curve at most
};

// Points over which `count` are smoothed: a fiftieth, at least 8 and at most 1,000.
double smoothing_span(size_t count);

// The whole figure: plot, legend, buttons, and a table of some of the values. Curves without any
// finite value are left out; without any curve the figure says that there is nothing to draw.
std::string draw(const LineChart& chart);

}  // namespace tutti::report
