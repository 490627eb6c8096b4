// What the driver reported about GPUs during the run, over the run's own clock.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "tutti/base/text.h"
#include "tutti/report/html.h"
#include "tutti/report/line_chart.h"
#include "tutti/report/run_sections.h"

namespace tutti::report {
namespace {

constexpr size_t kCurves = 8;  // of one chart; colours repeat beyond

using Value = std::optional<double> telemetry::GpuMeasured::*;
struct GpuChart {
  const char* id;
  const char* title;
  const char* subtitle;
  Quantity quantity;
  Value value;
  double unit;  // of the event, in one of the chart
};
constexpr GpuChart kCharts[] = {
    {"chart-gpu-power", "GPU power", "Watts, as reported by the driver.", Quantity::number,
     &telemetry::GpuMeasured::power_watts, 1},
    {"chart-gpu-clock", "GPU clock", "MHz of the multiprocessors.", Quantity::number,
     &telemetry::GpuMeasured::clock_hertz, 1e6},
    {"chart-gpu-temperature", "GPU temperature", "Degrees Celsius.", Quantity::number,
     &telemetry::GpuMeasured::temperature_celsius, 1},
    {"chart-gpu-memory", "GPU memory in use", "Of all processes on the GPU.", Quantity::bytes,
     &telemetry::GpuMeasured::memory_used_bytes, 1},
};

std::string gpu_chart(const RunData& run, const GpuChart& of) {
  std::map<std::string, Curve> curves;  // by GPU
  for (const auto& sample : run.gpus) {
    const std::optional<double>& value = sample.body.*of.value;
    if (!value) continue;
    Curve& curve = curves[sample.body.gpu];
    curve.name = sample.body.gpu;
    curve.x.push_back(sample.train_seconds);
    curve.y.push_back(*value / of.unit);
  }
  if (curves.empty()) return "";
  LineChart chart;
  chart.id = of.id;
  chart.title = of.title;
  chart.subtitle = of.subtitle;
  chart.x_name = "time";
  chart.x_quantity = Quantity::seconds;
  chart.y_quantity = of.quantity;
  chart.from_zero = true;
  for (auto& [gpu, curve] : curves) {
    curve.color = static_cast<int>(chart.curves.size() % kCurves);
    chart.curves.push_back(std::move(curve));
  }
  return draw(chart);
}

}  // namespace

std::string gpu_section(const RunData& run) {
  std::string charts;
  for (const GpuChart& chart : kCharts) charts += gpu_chart(run, chart);
  std::map<std::string, std::set<std::string>> reasons;  // by GPU
  std::map<std::string, int64_t> samples;
  for (const auto& sample : run.gpus) {
    for (const std::string& reason : sample.body.throttled) {
      reasons[sample.body.gpu].insert(reason);
    }
    samples[sample.body.gpu] += sample.body.throttled.empty() ? 0 : 1;
  }
  std::string notes;
  for (const auto& [gpu, names] : reasons) {
    notes += "<p class=\"note\">" +
             escape_html(fmt::format(
                 "{} had lower clocks than it could at {} looks: {}.", gpu, samples[gpu],
                 join(std::vector<std::string>(names.begin(), names.end()), ", "))) +
             "</p>\n";
  }
  return charts.empty() ? notes : "<div class=\"grid2\">" + charts + "</div>" + notes;
}

}  // namespace tutti::report
