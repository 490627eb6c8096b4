#include "tutti/plan/pressure.h"

#include <fmt/format.h>

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/base/units.h"

namespace tutti::plan {
namespace {

constexpr double kHalf = 0.5;

std::string per_cent(double share) { return fmt::format("{:.0f}%", 100 * share); }

}  // namespace

std::vector<Pressure> pressures(const Choice& choice, const RunTerms& terms) {
  const StepPrediction& step = choice.found.step;
  const Split& split = step.split;
  std::vector<Pressure> out;
  const double bytes = choice.found.memory.bytes;
  const double capacity = choice.system->chip.memory_bytes;
  out.push_back(
      {"memory", bytes / capacity,
       fmt::format("a rank needs {} of {}", format_bytes(bytes), format_bytes(capacity))});
  if (terms.site.rack_watts > 0 && choice.rack_watts) {
    out.push_back({"power", *choice.rack_watts / terms.site.rack_watts,
                   fmt::format("a rack draws {:.0f} of {:.0f} kW", *choice.rack_watts / 1e3,
                               terms.site.rack_watts / 1e3)});
  }
  const double network = (split.tp + split.cp + split.ep + split.pp + split.dp) / step.step_seconds;
  out.push_back({"network", network / kHalf,
                 fmt::format("{} of a step waits for communication", per_cent(network))});
  const double lost = 1 - choice.forecast.goodput;
  out.push_back({"failures", lost / kHalf,
                 fmt::format("an interruption every {}, {} of the time lost to them and to "
                             "checkpoints",
                             format_seconds(choice.forecast.mean_time_to_interruption_seconds),
                             per_cent(lost))});
  const double bubble = split.bubble / step.step_seconds;
  const Layout& layout = choice.found.layout;
  out.push_back({"parallelism", bubble / kHalf,
                 fmt::format("the batch fills {} of the pipelines' time (dp {}, pp {}, "
                             "micro-batch {})",
                             per_cent(1 - bubble), layout.mesh.dp, layout.mesh.pp, layout.micro)});
  std::stable_sort(out.begin(), out.end(),
                   [](const Pressure& a, const Pressure& b) { return a.used > b.used; });
  return out;
}

std::string pressure_sentence(const std::vector<Pressure>& pressures) {
  TUTTI_CHECK(pressures.size() >= 2, "{} pressures", pressures.size());
  const auto describe = [](const Pressure& pressure) {
    return fmt::format("{} ({} of the limit)", pressure.text, per_cent(pressure.used));
  };
  return fmt::format(
      "{}: {}: {}. Next: {}: {}.", pressures[0].used > 1 ? "Breaks first" : "Nearest to its limit",
      pressures[0].key, describe(pressures[0]), pressures[1].key, describe(pressures[1]));
}

}  // namespace tutti::plan
