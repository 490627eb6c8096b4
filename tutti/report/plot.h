// Common parts of plots. A plot is an SVG that stretches with its box (strokes keep their width)
// with labels as HTML around it, so that one drawing reads well on a phone and on a desk. Colours
// are classes c0 to c5 of the page's style (page_style.cpp), so they follow the theme. Everything
// is drawn here; the page's script only adds what moves.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "tutti/report/axis.h"

namespace tutti::report {

inline constexpr int kColors = 6;

// A value worth a line across the plot.
struct Mark {
  double value = 0;
  std::string label;
};

// Coordinates of the drawing's viewBox; the box stretches to any size.
inline constexpr int kPlotWidth = 3000;
inline constexpr int kPlotHeight = 1500;
int plot_x(double position);  // 0 (left) to 1 (right)
int plot_y(double position);  // 0 (bottom) to 1 (top)

// <svg ...><title>..</title><desc>..</desc>`body`</svg>; both texts are escaped.
std::string svg(const std::string& id, const std::string& title, const std::string& description,
                const std::string& body);

// Labels beside (vertical) or below (horizontal) the plot; `css_class` is set on their box. Where
// the page is narrow, every other one of the horizontal ones is hidden.
std::string axis_labels(const std::vector<Tick>& ticks, bool vertical, const char* css_class);

// Lines across the plot at the ticks.
std::string grid_lines(const std::vector<Tick>& ticks, bool vertical);

// <figure> with a heading, `controls` (markup) beside it, and `body`.
struct Frame {
  std::string id;
  std::string title;
  std::string subtitle;
  std::string css_class;
};
std::string figure(const Frame& frame, const std::string& controls, const std::string& body);

}  // namespace tutti::report
