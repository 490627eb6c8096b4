#include "tutti/report/gantt.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "tutti/report/html.h"

namespace tutti::report {
namespace {

constexpr double kPixel = 1.0 / 1500;  // of the width

// Spans that are drawn as one.
struct Block {
  double begin = 0;
  double end = 0;
  double busy = 0;  // seconds of its spans
  int count = 0;
  std::string label;
  int color = 0;
};

int color_of(const Span& span, const Lane& lane) {
  if (span.color == kIdle) return kIdle;
  return (span.color < 0 ? lane.color : span.color) % kColors;
}

std::string class_of(int color) {
  return color == kIdle ? "idle" : fmt::format("c{}", color % kColors);
}

std::string block_label(const Block& block) {
  const std::string busy = format_value(Quantity::seconds, block.busy);
  if (block.count == 1) return fmt::format("{}, {}", block.label, busy);
  return fmt::format("{} times, {} of {}", format_integer(block.count), busy,
                     format_value(Quantity::seconds, block.end - block.begin));
}

// Spans of one colour in order, those that touch on the screen joined.
void join_color(std::vector<Span> sorted, int color, double seconds, std::vector<Block>& out) {
  const size_t start = out.size();
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Span& a, const Span& b) { return a.begin < b.begin; });
  for (const Span& span : sorted) {
    const bool touches =
        out.size() > start && span.begin - out.back().end < kPixel * seconds &&
        // Long neighbours stay apart: their border means something.
        std::min(span.end - span.begin, out.back().end - out.back().begin) < 8 * kPixel * seconds;
    if (!touches) {
      out.push_back({span.begin, span.end, span.end - span.begin, 1, span.label, color});
      continue;
    }
    out.back().end = std::max(out.back().end, span.end);
    out.back().busy += span.end - span.begin;
    ++out.back().count;
  }
}

std::vector<Block> joined(const Lane& lane, double seconds) {
  std::map<int, std::vector<Span>> colors;
  for (const Span& span : lane.spans) {
    colors[color_of(span, lane)].push_back(span);
  }
  std::vector<Block> out;
  for (auto& [color, spans] : colors) join_color(std::move(spans), color, seconds, out);
  std::stable_sort(out.begin(), out.end(),
                   [](const Block& a, const Block& b) { return a.begin < b.begin; });
  return out;
}

std::string legend_html(const Gantt& gantt) {
  if (gantt.legend.empty()) return "";
  std::set<int> present;
  for (const Lane& lane : gantt.lanes) {
    for (const Span& span : lane.spans) present.insert(color_of(span, lane));
  }
  std::string items;
  for (const auto& [name, color] : gantt.legend) {
    if (present.count(color == kIdle ? kIdle : color % kColors) == 0) continue;
    items += fmt::format(
        "<li><svg viewBox=\"0 0 24 8\" aria-hidden=\"true\"><rect class=\"{}\" width=\"24\" "
        "height=\"8\"/></svg>{}</li>",
        class_of(color), escape_html(name));
  }
  return "<ul class=\"legend\">" + items + "</ul>\n";
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
    for (const Block& block : joined(lane, seconds)) {
      const double from = block.begin - begin;
      const int left = plot_x(xs.position(from));
      const int right = plot_x(xs.position(block.end - begin));
      // The denser the spans of a block, the fuller its colour.
      const double share = block.busy / std::max(block.end - block.begin, 1e-9);
      drawing += fmt::format(
          "<rect class=\"{}\" x=\"{}\" y=\"150\" width=\"{}\" height=\"1200\""
          " opacity=\"{:.2g}\"><title>{}</title></rect>\n",
          class_of(block.color), left, std::max(7, right - left),
          block.count == 1 ? 1.0 : std::clamp(share, 0.2, 1.0), escape_html(block_label(block)));
      busy += block.busy;
      if (table.rows.size() < 200) {
        table.rows.push_back({lane.name, block_label(block), format_value(Quantity::seconds, from),
                              format_value(Quantity::seconds, block.end - block.begin)});
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
      legend_html(gantt) +
          fmt::format("<div class=\"gantt\">{}<div class=\"lane\"><span class=\"name\"></span>"
                      "{}</div></div>\n",
                      rows, axis_labels(ticks, false, "")) +
          html_details("Times as a table", html_table(table)));
}

}  // namespace tutti::report
