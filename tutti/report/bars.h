// Bars: a distribution of values, and quantities by name.
#pragma once

#include <string>
#include <vector>

#include "tutti/report/plot.h"

namespace tutti::report {

// How often values fall into intervals of equal width. The few beyond `clip` are counted in a note,
// so that one slow step does not press all others into one bar.
struct Histogram {
  std::string id, title, subtitle;
  Quantity quantity = Quantity::number;
  std::string what = "values";  // that are counted
  std::vector<double> values;
  std::vector<Mark> marks;  // quantiles
  int bins = 48;
  double clip = 0;  // 0: none
};
std::string draw(const Histogram& histogram);

// Horizontal bars from the largest to the smallest, as a table whose cells hold the bars.
struct Bars {
  struct Bar {
    std::string name;
    double value = 0;
    int color = 0;
  };
  std::string id, title, subtitle;
  std::string name_title = "Kind", value_title = "Size";
  Quantity quantity = Quantity::bytes;
  std::vector<Bar> bars;
};
std::string draw(const Bars& bars);

}  // namespace tutti::report
