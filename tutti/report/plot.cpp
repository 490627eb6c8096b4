#include "tutti/report/plot.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/report/html.h"

namespace tutti::report {

int plot_x(double position) {
  return static_cast<int>(std::lround(std::clamp(position, 0.0, 1.0) * kPlotWidth));
}
int plot_y(double position) {
  return static_cast<int>(std::lround((1 - std::clamp(position, 0.0, 1.0)) * kPlotHeight));
}

std::string svg(const std::string& id, const std::string& title, const std::string& description,
                const std::string& body) {
  return fmt::format(
      "<svg viewBox=\"0 0 {} {}\" preserveAspectRatio=\"none\" role=\"img\" "
      "aria-labelledby=\"{}-t {}-d\"><title id=\"{}-t\">{}</title><desc id=\"{}-d\">{}</desc>\n"
      "{}</svg>\n",
      kPlotWidth, kPlotHeight, id, id, id, escape_html(title), id, escape_html(description), body);
}

std::string axis_labels(const std::vector<Tick>& ticks, bool vertical, const char* css_class) {
  std::string out =
      fmt::format("<div class=\"{} {}\" aria-hidden=\"true\">", vertical ? "ys" : "xs", css_class);
  for (const Tick& tick : ticks) {
    if (vertical) {
      out += fmt::format("<span style=\"top:{:.2f}%\">{}</span>", 100 * (1 - tick.at),
                         escape_html(tick.label));
    } else {
      out += fmt::format("<span style=\"left:{:.2f}%\">{}</span>", 100 * tick.at,
                         escape_html(tick.label));
    }
  }
  return out + "</div>\n";
}

std::string grid_lines(const std::vector<Tick>& ticks, bool vertical) {
  std::string path;
  for (const Tick& tick : ticks) {
    path += vertical ? fmt::format("M{} 0V{}", plot_x(tick.at), kPlotHeight)
                     : fmt::format("M0 {}H{}", plot_y(tick.at), kPlotWidth);
  }
  return fmt::format("<path class=\"grid\" d=\"{}\"/>\n", path);
}

std::string figure(const Frame& frame, const std::string& controls, const std::string& body) {
  std::string out =
      fmt::format("<figure class=\"card chart {}\" id=\"{}\"><figcaption><div><h3>{}</h3>",
                  frame.css_class, escape_html(frame.id), escape_html(frame.title));
  if (!frame.subtitle.empty()) out += fmt::format("<p>{}</p>", escape_html(frame.subtitle));
  out += "</div>";
  if (!controls.empty()) out += fmt::format("<div class=\"controls\">{}</div>", controls);
  return out + "</figcaption>\n" + body + "</figure>\n";
}

}  // namespace tutti::report
