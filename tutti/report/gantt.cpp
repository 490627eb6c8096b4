#include "tutti/report/gantt.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "tutti/report/html.h"

namespace tutti::report {
namespace {

constexpr double kPixel = 1.0 / 1500;  // of the width

// Spans in order, those that touch on the screen joined.
std::vector<Span> joined(const Lane& lane, double seconds) {
  std::vector<Span> sorted = lane.spans;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Span& a, const Span& b) { return a.begin < b.begin; });
  std::vector<Span> out;
  std::vector<int> counts;
  for (const Span& span : sorted) {
    const bool touches =
        !out.empty() && span.begin - out.back().end < kPixel * seconds &&
        // Long neighbours stay apart: their border means something.
        std::min(span.end - span.begin, out.back().end - out.back().begin) < 8 * kPixel * seconds;
    if (!touches) {
      out.push_back(span);
      counts.push_back(1);
      continue;
    }
    out.back().end = std::max(out.back().end, span.end);
    out.back().label = fmt::format("{} in short order", ++counts.back());
  }
  return out;
}

}  // namespace

std::string draw(const Gantt& gantt) {
  double begin = std::numeric_limits<double>::infinity();
  double end = -begin;
  for (const Lane& lane : gantt.lanes) {
    for (const Span& span : lane.spans) {
      begin = std::min(begin, span.begin);
      end = std::max(end, span.end);
    }
  }
  const Frame frame{gantt.id, gantt.title, gantt.subtitle, gantt.wide ? "wide" : ""};
  if (begin > end) return figure(frame, "", "<p class=\"empty\">No times recorded.</p>\n");
  const double seconds = std::max(end - begin, 1e-3);
  const Axis xs{Scale::linear, 0, seconds};
  const std::vector<Tick> ticks = make_ticks(xs, Quantity::seconds, 8);

  Table table{gantt.title, false, {{"Lane"}, {"What"}, {"from", true}, {"for", true}}, {}};
  std::string mark_path;
  for (const Mark& mark : gantt.marks) {
    mark_path += fmt::format("M{} 0V{}", plot_x(xs.position(mark.value - begin)), kPlotHeight);
  }
  std::string rows;
  int number = 0;
  for (const Lane& lane : gantt.lanes) {
    std::string drawing = grid_lines(ticks, true);
    double busy = 0;
    for (const Span& span : joined(lane, seconds)) {
      const double from = span.begin - begin;
      const int left = plot_x(xs.position(from));
      const int right = plot_x(xs.position(span.end - begin));
      const std::string length = format_value(Quantity::seconds, span.end - span.begin);
      drawing += fmt::format(
          "<rect class=\"span c{}\" x=\"{}\" y=\"150\" width=\"{}\" height=\"1200\"><title>{}, {}"
          "</title></rect>\n",
          lane.color % kColors, left, std::max(7, right - left), escape_html(span.label), length);
      busy += span.end - span.begin;
      if (table.rows.size() < 200) {
        table.rows.push_back(
            {lane.name, span.label, format_value(Quantity::seconds, from), length});
      }
    }
    drawing += fmt::format("<path class=\"mark across\" d=\"{}\"/>\n", mark_path);
    rows += fmt::format(
        "<div class=\"lane\"><span class=\"name\">{}</span><div class=\"bed\">{}"
        "</div></div>\n",
        escape_html(lane.name),
        svg(fmt::format("{}-{}", gantt.id, number++), lane.name,
            fmt::format("{} spans, {} in all", lane.spans.size(),
                        format_value(Quantity::seconds, busy)),
            drawing));
  }
  return figure(
      frame, "",
      fmt::format("<div class=\"gantt\">{}<div class=\"lane\"><span class=\"name\"></span>"
                  "{}</div></div>\n",
                  rows, axis_labels(ticks, false, "")) +
          html_details("Times as a table", html_table(table)));
}

}  // namespace tutti::report
