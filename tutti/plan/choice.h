// Options for a whole training run: layouts on a system, priced from the first step to the last
// with failures, money, energy and power, and compared.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tutti/catalog/catalog.h"
#include "tutti/plan/bill.h"
#include "tutti/plan/failures.h"
#include "tutti/plan/search.h"

namespace tutti::plan {

struct RunTerms {
  double steps = 1;
  catalog::Site site;
  catalog::PriceKind price_kind = catalog::PriceKind::on_demand;
  FailureModel failures;
};

struct Choice {
  const catalog::System* system = nullptr;
  int64_t gpus = 0;
  Found found;
  bool fits = true;
  FailureForecast forecast;
  Bill bill;
  std::optional<double> rack_watts;  // if the nodes per rack and their power are known
};

Choice make_choice(const catalog::System& system, const catalog::Price* price, int64_t gpus,
                   Found found, const RunTerms& terms);

// Indices of the choices that no other beats in time, money and energy at once, fastest first; of
// equal ones the first. Choices that do not fit are omitted; a price or power that is unknown for
// one of two is not compared.
std::vector<size_t> pareto_front(const std::vector<Choice>& choices);

struct Constraints {  // 0: none
  double target_seconds = 0;
  double budget_usd = 0;
  double rack_watts = 0;
};

struct Excess {
  std::string key;   // "memory", "target", "budget", "rack_power"
  double ratio = 0;  // needed over allowed, above 1
  std::string text;  // "the run takes 3 h 10 min, 1.9 times the target of 1 h 40 min"
};
// The constraints that `choice` exceeds, the worst first. A budget without a price is exceeded
// infinitely.
std::vector<Excess> excesses(const Choice& choice, const Constraints& constraints);

// The index of the recommended choice among those that exceed nothing: with a target and a price
// the cheapest, else the fastest. If all exceed a constraint, the one whose worst excess is least.
struct Recommended {
  size_t index = 0;
  bool satisfied = false;
};
Recommended recommend(const std::vector<Choice>& choices, const Constraints& constraints);

}  // namespace tutti::plan
