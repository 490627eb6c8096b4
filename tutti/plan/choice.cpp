#include "tutti/plan/choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/units.h"

namespace tutti::plan {
namespace {

constexpr double kUnbounded = std::numeric_limits<double>::infinity();

struct Compared {
  bool no_worse = false;  // in time, money and energy
  bool equal = false;
};

Compared compare(const Choice& a, const Choice& b) {
  const bool priced = a.bill.usd.has_value() && b.bill.usd.has_value();
  const double usd_a = priced ? *a.bill.usd : 0;
  const double usd_b = priced ? *b.bill.usd : 0;
  const double time_a = a.forecast.wall_seconds;
  const double time_b = b.forecast.wall_seconds;
  const bool powered = !std::isnan(a.bill.facility_kwh) && !std::isnan(b.bill.facility_kwh);
  const double kwh_a = powered ? a.bill.facility_kwh : 0;
  const double kwh_b = powered ? b.bill.facility_kwh : 0;
  return {time_a <= time_b && usd_a <= usd_b && kwh_a <= kwh_b,
          time_a == time_b && usd_a == usd_b && kwh_a == kwh_b};
}

double worst_ratio(const Choice& choice, const Constraints& constraints) {
  const std::vector<Excess> all = excesses(choice, constraints);
  return all.empty() ? 1 : all.front().ratio;
}

}  // namespace

Choice make_choice(const catalog::System& system, const catalog::Price* price, int64_t gpus,
                   Found found, const RunTerms& terms) {
  Choice out;
  out.system = &system;
  out.gpus = gpus;
  out.found = std::move(found);
  out.fits = out.found.memory.fits;
  const StepPrediction& step = out.found.step;
  const int64_t nodes = (gpus + system.chips_per_node - 1) / system.chips_per_node;
  out.forecast = forecast_failures(terms.failures, nodes, step.step_seconds * terms.steps);
  out.bill =
      bill_of(system, terms.site, price, terms.price_kind, step, gpus, out.forecast.wall_seconds);
  if (system.nodes_per_rack > 0 && !std::isnan(out.bill.node_watts)) {
    out.rack_watts = out.bill.node_watts * static_cast<double>(system.nodes_per_rack);
  }
  return out;
}

std::vector<size_t> pareto_front(const std::vector<Choice>& choices) {
  std::vector<size_t> front;
  for (size_t i = 0; i < choices.size(); ++i) {
    bool beaten = false;
    for (size_t j = 0; j < choices.size() && !beaten; ++j) {
      if (!choices[j].fits || j == i) continue;
      const Compared compared = compare(choices[j], choices[i]);
      beaten = compared.no_worse && (!compared.equal || j < i);
    }
    if (choices[i].fits && !beaten) front.push_back(i);
  }
  std::stable_sort(front.begin(), front.end(), [&](size_t a, size_t b) {
    return choices[a].forecast.wall_seconds < choices[b].forecast.wall_seconds;
  });
  return front;
}

std::vector<Excess> excesses(const Choice& choice, const Constraints& constraints) {
  std::vector<Excess> out;
  const auto add = [&](const char* key, double ratio, std::string text) {
    if (ratio > 1) out.push_back({key, ratio, std::move(text)});
  };
  const double capacity = choice.system->chip.memory_bytes;
  const double bytes = choice.found.memory.bytes;
  add("memory", bytes / capacity,
      fmt::format("a rank needs {}, {:.3g} times the {} of a {}", format_bytes(bytes),
                  bytes / capacity, format_bytes(capacity), choice.system->chip.name));
  if (constraints.target_seconds > 0) {
    const double wall = choice.forecast.wall_seconds;
    add("target", wall / constraints.target_seconds,
        fmt::format("the run takes {}, {:.3g} times the target of {}", format_seconds(wall),
                    wall / constraints.target_seconds, format_seconds(constraints.target_seconds)));
  }
  if (constraints.budget_usd > 0) {
    if (choice.bill.usd) {
      const double ratio = *choice.bill.usd / constraints.budget_usd;
      add("budget", ratio,
          fmt::format("the run costs USD {:.0f}, {:.3g} times the budget of USD {:.0f}",
                      *choice.bill.usd, ratio, constraints.budget_usd));
    } else {
      add("budget", kUnbounded,
          fmt::format("the catalog has no public price of {}, so the budget cannot be checked",
                      choice.system->name));
    }
  }
  if (constraints.rack_watts > 0 && choice.rack_watts) {
    const double ratio = *choice.rack_watts / constraints.rack_watts;
    add("rack_power", ratio,
        fmt::format("a rack draws {:.1f} kW, {:.3g} times the site's cap of {:.1f} kW",
                    *choice.rack_watts / 1e3, ratio, constraints.rack_watts / 1e3));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const Excess& a, const Excess& b) { return a.ratio > b.ratio; });
  return out;
}

Recommended recommend(const std::vector<Choice>& choices, const Constraints& constraints) {
  TUTTI_CHECK(!choices.empty(), "nothing to choose from");
  // Lexicographic order: first the excess, then money or time.
  const auto rank = [&](const Choice& choice) {
    const double usd = choice.bill.usd.value_or(kUnbounded);
    return std::tuple(worst_ratio(choice, constraints), constraints.target_seconds > 0 ? usd : 0,
                      choice.forecast.wall_seconds);
  };
  const auto best =
      std::min_element(choices.begin(), choices.end(),
                       [&](const Choice& a, const Choice& b) { return rank(a) < rank(b); });
  return {static_cast<size_t>(best - choices.begin()), worst_ratio(*best, constraints) <= 1};
}

}  // namespace tutti::plan
