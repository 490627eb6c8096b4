#include "tutti/report/bars.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/report/html.h"
#include "tutti/report/series.h"

namespace tutti::report {
namespace {

struct Bins {
  double low = 0;
  double width = 1;
  std::vector<int64_t> counts;
  int64_t beyond = 0;
  int64_t values = 0;
};

Bins count_bins(const Histogram& histogram) {
  std::vector<double> values = histogram.values;
  std::erase_if(values, [](double x) { return !std::isfinite(x); });
  Bins bins;
  bins.values = static_cast<int64_t>(values.size());
  if (values.empty()) return bins;
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  const double high = histogram.clip > *least ? std::min(*most, histogram.clip) : *most;
  bins.low = *least;
  double range = high - *least;
  // Equal values are one bar in the middle, not a division by zero.
  if (range <= 1e-9 * std::abs(high)) {
    range = std::max(1e-9, 0.2 * std::abs(high));
    bins.low -= range / 2;
  }
  bins.width = range / histogram.bins;
  bins.counts.assign(static_cast<size_t>(histogram.bins), 0);
  for (const double value : values) {
    if (value > high) {
      ++bins.beyond;
      continue;
    }
    const auto at = static_cast<int64_t>((value - bins.low) / bins.width);
    ++bins.counts[static_cast<size_t>(std::clamp<int64_t>(at, 0, histogram.bins - 1))];
  }
  return bins;
}

std::string bin_table(const Histogram& histogram, const Bins& bins) {
  Table table{histogram.title, false, {{"from", true}, {"to", true}, {histogram.what, true}}, {}};
  for (size_t i = 0; i < bins.counts.size(); ++i) {
    if (bins.counts[i] == 0) continue;
    const double from = bins.low + static_cast<double>(i) * bins.width;
    table.rows.push_back({format_value(histogram.quantity, from),
                          format_value(histogram.quantity, from + bins.width),
                          format_integer(bins.counts[i])});
  }
  return html_details("Values as a table", html_table(table));
}

}  // namespace

std::string draw(const Histogram& histogram) {
  const Bins bins = count_bins(histogram);
  const Frame frame{histogram.id, histogram.title, histogram.subtitle, ""};
  if (bins.values == 0) return figure(frame, "", "<p class=\"empty\">No values recorded.</p>\n");

  const Axis xs{Scale::linear, bins.low,
                bins.low + bins.width * static_cast<double>(bins.counts.size())};
  const int64_t most = *std::max_element(bins.counts.begin(), bins.counts.end());
  const Axis ys{Scale::linear, 0, 1.06 * static_cast<double>(most)};
  const std::vector<Tick> x_ticks = make_ticks(xs, histogram.quantity, 6);
  const std::vector<Tick> y_ticks = make_ticks(ys, Quantity::integer, 4);
  std::string drawing = grid_lines(y_ticks, false);
  for (size_t i = 0; i < bins.counts.size(); ++i) {
    if (bins.counts[i] == 0) continue;
    const auto at = static_cast<double>(i);
    const auto count = static_cast<double>(bins.counts[i]);
    const int left = plot_x(at / static_cast<double>(bins.counts.size())) + 4;
    const int right = plot_x((at + 1) / static_cast<double>(bins.counts.size())) - 4;
    // A single step stays visible among thousands.
    const int top = std::min(plot_y(ys.position(count)), kPlotHeight - 12);
    drawing +=
        fmt::format("<rect class=\"bar c0\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\"/>\n", left,
                    top, right - left, kPlotHeight - top);
  }
  std::string mark_path;
  std::string labels;
  for (const Mark& mark : histogram.marks) {
    const double at = xs.position(mark.value);
    if (!(at >= 0 && at <= 1)) continue;
    mark_path += fmt::format("M{} 0V{}", plot_x(at), kPlotHeight);
    // Labels of neighbours would cover each other: they are in the subtitle's order, one per row.
    labels += fmt::format("<span class=\"quantile{}\" style=\"left:{:.2f}%;top:{}em\">{}</span>",
                          at > 0.8 ? " left" : "", 100 * at,
                          1.35 * static_cast<double>(&mark - histogram.marks.data()),
                          escape_html(mark.label));
  }
  drawing += fmt::format("<path class=\"mark across\" d=\"{}\"/>\n", mark_path);

  std::string description =
      fmt::format("{} {}, the fullest bar holds {}.", format_integer(bins.values), histogram.what,
                  format_integer(most));
  std::string note;
  if (bins.beyond > 0) {
    note = fmt::format("<p class=\"note\">{} of {} {} are longer than {} and not drawn.</p>\n",
                       format_integer(bins.beyond), format_integer(bins.values),
                       escape_html(histogram.what), format_value(histogram.quantity, xs.high));
  }
  return figure(frame, "",
                fmt::format("<div class=\"plot\">{}<div class=\"area\">{}{}</div>{}</div>{}",
                            axis_labels(y_ticks, true, ""),
                            svg(histogram.id, histogram.title, description, drawing), labels,
                            axis_labels(x_ticks, false, ""), note) +
                    bin_table(histogram, bins));
}

std::string draw(const Bars& bars) {
  const Frame frame{bars.id, bars.title, bars.subtitle, ""};
  if (bars.bars.empty()) return figure(frame, "", "<p class=\"empty\">No values recorded.</p>\n");
  std::vector<Bars::Bar> sorted = bars.bars;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Bars::Bar& a, const Bars::Bar& b) { return a.value > b.value; });
  const double most = std::max(sorted.front().value, 1e-300);
  double sum = 0;
  for (const Bars::Bar& bar : sorted) sum += bar.value;
  std::string out = fmt::format(
      "<table class=\"bars\"><caption class=\"unseen\">{}</caption><thead class=\"unseen\"><tr>"
      "<th scope=\"col\">{}</th><th scope=\"col\">Bar</th><th scope=\"col\">{}</th>"
      "<th scope=\"col\">Share</th></tr></thead><tbody>\n",
      escape_html(bars.title), escape_html(bars.name_title), escape_html(bars.value_title));
  for (const Bars::Bar& bar : sorted) {
    out += fmt::format(
        "<tr><th scope=\"row\">{}</th><td class=\"track\" aria-hidden=\"true\"><span class=\"fill "
        "c{}\" style=\"width:{:.2f}%\"></span></td><td class=\"n\">{}</td>"
        "<td class=\"n share\">{:.0f}%</td></tr>\n",
        escape_html(bar.name), bar.color % kColors, 100 * std::max(0.0, bar.value) / most,
        format_value(bars.quantity, bar.value), sum > 0 ? 100 * bar.value / sum : 0);
  }
  return figure(frame, "", out + "</tbody></table>\n");
}

}  // namespace tutti::report
