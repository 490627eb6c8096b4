#include "tutti/report/line_chart.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/report/html.h"
#include "tutti/report/series.h"

namespace tutti::report {
namespace {

constexpr size_t kSmoothedFrom = 40;  // points: fewer need no smoothing
constexpr size_t kTableRows = 24;
constexpr size_t kMostDots = 80;
constexpr int kXTicks = 8;
constexpr int kYTicks = 6;

// A curve after downsampling.
struct Thinned {
  const Curve* curve = nullptr;
  std::vector<double> x, y;
  std::vector<double> smoothed;  // empty when it is not
};

bool has_values(const Curve& curve) {
  return std::any_of(curve.y.begin(), curve.y.end(), [](double y) { return std::isfinite(y); });
}

Thinned thin(const Curve& curve, size_t points) {
  Thinned out{&curve, {}, {}, {}};
  const bool with_mean = curve.smoothed && curve.y.size() >= kSmoothedFrom;
  const std::vector<double> all =
      with_mean ? smooth(curve.y, smoothing_span(curve.y.size())) : std::vector<double>();
  for (const size_t i : downsample(curve.y, points)) {
    out.x.push_back(curve.x[i]);
    out.y.push_back(curve.y[i]);
    if (with_mean) out.smoothed.push_back(all[i]);
  }
  return out;
}

bool drawable(const Axis& axis, double value) {
  return std::isfinite(value) && (axis.scale == Scale::linear || value > 0);
}

std::string line_path(const std::vector<double>& x, const std::vector<double>& y, const Axis& xs,
                      const Axis& ys) {
  std::string path;
  bool down = false;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!drawable(ys, y[i])) {
      down = false;
      continue;
    }
    path += fmt::format("{}{} {}", down ? 'L' : 'M', plot_x(xs.position(x[i])),
                        plot_y(ys.position(y[i])));
    down = true;
  }
  return path;
}

// Lines of no length with round ends: dots that stay round when the drawing is stretched.
std::string dot_path(const std::vector<double>& x, const std::vector<double>& y, const Axis& xs,
                     const Axis& ys) {
  std::string path;
  for (size_t i = 0; i < x.size(); ++i) {
    if (!drawable(ys, y[i])) continue;
    path += fmt::format("M{} {}h0", plot_x(xs.position(x[i])), plot_y(ys.position(y[i])));
  }
  return path;
}

// Dots that touch each other say less than a line.
bool draws_dots(const Thinned& t) {
  return t.curve->style == Curve::Style::dots && t.x.size() <= kMostDots;
}

std::string draw_path(const char* kind, int color, const std::string& path) {
  return fmt::format("<path class=\"{} c{}\" d=\"{}\"/>\n", kind, color % kColors, path);
}

std::string draw_curve(const Thinned& t, const Axis& xs, const Axis& ys) {
  const int color = t.curve->color;
  const bool second_round = color >= kColors;  // colours repeat, dashed
  const char* line = second_round ? "line dashed" : "line";
  std::string out;
  if (draws_dots(t)) {
    out += draw_path("joint", color, line_path(t.x, t.y, xs, ys));
    return out + draw_path("dots", color, dot_path(t.x, t.y, xs, ys));
  }
  if (t.smoothed.empty()) return draw_path(line, color, line_path(t.x, t.y, xs, ys));
  out += draw_path("line raw", color, line_path(t.x, t.y, xs, ys));
  const std::string mean = std::string(line) + " mean";
  return out + draw_path(mean.c_str(), color, line_path(t.x, t.smoothed, xs, ys));
}

std::string draw_marks(const std::vector<Mark>& marks, const Axis& axis, bool vertical) {
  std::string path;
  for (const Mark& mark : marks) {
    if (!drawable(axis, mark.value)) continue;
    const double at = axis.position(mark.value);
    if (at < 0 || at > 1) continue;
    path += vertical ? fmt::format("M{} 0V{}", plot_x(at), kPlotHeight)
                     : fmt::format("M0 {}H{}", plot_y(at), kPlotWidth);
  }
  if (path.empty()) return {};
  return fmt::format("<path class=\"mark {}\" d=\"{}\"/>\n", vertical ? "across" : "level", path);
}

// The part of the drawing that depends on the scale of y.
std::string draw_scaled(const LineChart& chart, const std::vector<Thinned>& curves, const Axis& xs,
                        const Axis& ys, const char* css_class) {
  std::string out = fmt::format("<g class=\"{}\">", css_class);
  out += grid_lines(make_ticks(ys, chart.y_quantity, kYTicks), false);
  out += draw_marks(chart.horizontal, ys, false);
  for (const Thinned& t : curves) out += draw_curve(t, xs, ys);
  return out + "</g>\n";
}

std::string legend_mark(const Mark& mark, const char* css_class, const char* path) {
  return fmt::format(
      "<li><svg viewBox=\"0 0 24 8\" aria-hidden=\"true\"><path class=\"mark {}\" "
      "d=\"{}\"/></svg>{}</li>",
      css_class, path, escape_html(mark.label));
}

std::string legend(const LineChart& chart, const std::vector<Thinned>& curves) {
  if (curves.size() < 2 && chart.vertical.empty() && chart.horizontal.empty()) return {};
  std::string out = "<ul class=\"legend\">";
  for (const Thinned& t : curves) {
    const bool dots = draws_dots(t);
    out += fmt::format(
        "<li><svg viewBox=\"0 0 24 8\" aria-hidden=\"true\"><path class=\"{} c{}\" "
        "d=\"{}\"/></svg>{}</li>",
        dots                        ? "dots"
        : t.curve->color >= kColors ? "line dashed"
                                    : "line",
        t.curve->color % kColors, dots ? "M12 4h0" : "M1 4H23", escape_html(t.curve->name));
  }
  for (const Mark& mark : chart.horizontal) out += legend_mark(mark, "level", "M1 4H23");
  // One name for all: resumes.
  if (!chart.vertical.empty()) {
    out += legend_mark(chart.vertical.front(), "across", "M12 0V8");
  }
  return out + "</ul>\n";
}

std::string button(const char* what, const char* label, bool pressed) {
  return fmt::format("<button type=\"button\" data-toggle=\"{}\" aria-pressed=\"{}\">{}</button>",
                     what, pressed, label);
}

// Five significant digits are more than a screen can show. The largest numbers would be rounded
// beyond all; tiny ones lose digits, which stod takes for an error.
Json short_numbers(const std::vector<double>& values) {
  Json out = Json::array();
  for (const double value : values) {
    const double rounded = std::strtod(fmt::format("{:.5g}", value).c_str(), nullptr);
    out.push_back(std::isfinite(value) ? Json(std::isfinite(rounded) ? rounded : value)
                                       : Json(nullptr));
  }
  return out;
}

Json script_data(const LineChart& chart, const std::vector<Thinned>& curves, const Axis& xs,
                 const Axis& ys, const std::optional<Axis>& log) {
  Json data = {{"x", {xs.low, xs.high}},
               {"lin", {ys.low, ys.high}},
               {"log", log ? Json{log->low, log->high} : Json(nullptr)},
               {"xname", chart.x_name},
               {"xq", quantity_name(chart.x_quantity)},
               {"yq", quantity_name(chart.y_quantity)},
               {"tokens", chart.tokens_per_step},
               {"curves", Json::array()}};
  for (const Thinned& t : curves) {
    // Steps keep all their digits.
    Json x = chart.x_quantity == Quantity::integer ? Json(t.x) : short_numbers(t.x);
    data["curves"].push_back({{"name", t.curve->name},
                              {"c", t.curve->color % kColors},
                              {"x", std::move(x)},
                              {"y", short_numbers(t.y)},
                              {"mean", short_numbers(t.smoothed)}});
  }
  return data;
}

std::string value_table(const LineChart& chart, const std::vector<Thinned>& curves) {
  std::string out;
  for (const Thinned& t : curves) {
    Table table;
    table.caption = curves.size() > 1 ? chart.title + ": " + t.curve->name : chart.title;
    table.show_caption = curves.size() > 1;
    table.columns = {{chart.x_name, true}, {t.curve->name, true}};
    if (!t.smoothed.empty()) table.columns.push_back({"smoothed", true});
    const size_t count = t.x.size();
    const size_t rows = std::min(count, kTableRows);
    for (size_t r = 0; r < rows; ++r) {
      const size_t i = rows > 1 ? r * (count - 1) / (rows - 1) : 0;
      table.rows.push_back(
          {format_value(chart.x_quantity, t.x[i]), format_value(chart.y_quantity, t.y[i])});
      if (!t.smoothed.empty()) {
        table.rows.back().push_back(format_value(chart.y_quantity, t.smoothed[i]));
      }
    }
    out += html_table(table);
  }
  return html_details("Values as a table", out);
}

std::string describe(const LineChart& chart, const std::vector<Thinned>& curves) {
  std::string out;
  for (const Thinned& t : curves) {
    std::vector<double> finite = t.y;
    std::erase_if(finite, [](double y) { return !std::isfinite(y); });
    const auto [low, high] = std::minmax_element(finite.begin(), finite.end());
    out += fmt::format("{} from {} at {} {} to {} at {} {}, between {} and {}. ", t.curve->name,
                       format_value(chart.y_quantity, finite.front()), chart.x_name,
                       format_value(chart.x_quantity, t.x.front()),
                       format_value(chart.y_quantity, finite.back()), chart.x_name,
                       format_value(chart.x_quantity, t.x.back()),
                       format_value(chart.y_quantity, *low), format_value(chart.y_quantity, *high));
  }
  return out;
}

Axis x_axis(const std::vector<Thinned>& curves) {
  std::vector<double> ends;
  for (const Thinned& t : curves) {
    ends.push_back(t.x.front());
    ends.push_back(t.x.back());
  }
  const auto [low, high] = std::minmax_element(ends.begin(), ends.end());
  if (*low == *high) return {Scale::linear, *low - 1, *high + 1};
  return {Scale::linear, *low, *high};
}

std::string draw_curves(const LineChart& chart, const std::vector<Thinned>& curves) {
  std::vector<double> values;
  bool smoothed = false;
  for (const Thinned& t : curves) {
    values.insert(values.end(), t.y.begin(), t.y.end());
    smoothed = smoothed || !t.smoothed.empty();
  }
  for (const Mark& mark : chart.horizontal) values.push_back(mark.value);
  const Axis xs = x_axis(curves);
  const Axis ys = make_axis(Scale::linear, values, chart.from_zero);
  std::optional<Axis> log;
  if (chart.offers_log) log = make_axis(Scale::logarithmic, values, false);

  const std::vector<Tick> x_ticks = make_ticks(xs, chart.x_quantity, kXTicks);
  std::string drawing = grid_lines(x_ticks, true) + draw_marks(chart.vertical, xs, true);
  drawing += draw_scaled(chart, curves, xs, ys, "lin");
  if (log) drawing += draw_scaled(chart, curves, xs, *log, "log");

  std::string labels = axis_labels(make_ticks(ys, chart.y_quantity, kYTicks), true, "lin");
  if (log) {
    labels += axis_labels(make_ticks(*log, chart.y_quantity, kYTicks), true, "log");
  }

  std::string controls;
  if (log) controls += button("log", "Log scale", false);
  if (smoothed) controls += button("smooth", "Smooth", true);

  Frame frame{chart.id, chart.title, chart.subtitle, chart.wide ? "wide" : ""};
  if (smoothed) frame.css_class += " is-smooth";
  const std::string plot = fmt::format(
      "<div class=\"plot\">{}<div class=\"area\" tabindex=\"0\" role=\"group\" "
      "aria-label=\"{}: arrow keys read values\">{}</div>{}</div>"
      "<p class=\"xname\" aria-hidden=\"true\">{}</p>\n",
      labels, escape_html(chart.title),
      svg(chart.id, chart.title, describe(chart, curves), drawing), axis_labels(x_ticks, false, ""),
      escape_html(chart.x_name));
  return figure(frame, controls,
                legend(chart, curves) + plot + html_data(script_data(chart, curves, xs, ys, log)) +
                    value_table(chart, curves));
}

}  // namespace

double smoothing_span(size_t count) {
  return std::clamp(static_cast<double>(count) / 50, 8.0, 1000.0);
}

std::string draw(const LineChart& chart) {
  std::vector<Thinned> curves;
  for (const Curve& curve : chart.curves) {
    if (has_values(curve)) curves.push_back(thin(curve, chart.points));
  }
  if (curves.empty()) {
    const Frame frame{chart.id, chart.title, chart.subtitle, chart.wide ? "wide" : ""};
    return figure(frame, "", "<p class=\"empty\">No values recorded.</p>\n");
  }
  return draw_curves(chart, curves);
}

}  // namespace tutti::report
