#include "tutti/plan/what_if.h"

#include <fmt/format.h>

#include <charconv>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/plan/sensitivity.h"
#include "tutti/spec/recipe/names.h"

namespace tutti::plan {
namespace {

double factor(const std::string& key, const std::string& value) {
  double number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc() || end != value.data() + value.size() || !(number > 0) || number > 1e6) {
    fail(ErrorKind::usage, "--what-if: {}={}: not a factor above 0, such as 2", key, value);
  }
  return number;
}

void add(std::vector<WhatIf>& list, std::string name, std::vector<std::string> overrides) {
  WhatIf what_if;
  what_if.name = std::move(name);
  what_if.overrides = std::move(overrides);
  list.push_back(std::move(what_if));
}

std::string change(double now, double before) {
  return fmt::format("{:+.1f}%", 100 * (now / before - 1));
}

}  // namespace

WhatIf parse_what_if(const std::string& text) {
  WhatIf out;
  out.name = text;
  for (const std::string_view word : split(text, ',')) {
    const std::string part(word);
    const size_t equals = part.find('=');
    if (equals == std::string::npos || equals == 0 || equals + 1 == part.size()) {
      fail(ErrorKind::usage,
           "--what-if: '{}' is not KEY=VALUE; accepted: system, chip, network, link, memory, "
           "failures=none, or a key of the recipe, such as precision=fp8",
           part);
    }
    const std::string key = part.substr(0, equals);
    const std::string value = part.substr(equals + 1);
    if (key == "system") {
      out.system = value;
    } else if (key == "chip") {
      out.chip = value;
    } else if (key == "network") {
      out.network_factor = factor(key, value);
    } else if (key == "link") {
      out.link_factor = factor(key, value);
    } else if (key == "memory") {
      out.memory_factor = factor(key, value);
    } else if (key == "failures") {
      if (value != "none") {
        fail(ErrorKind::usage, "--what-if: failures={}; accepted: failures=none", value);
      }
      out.failures = false;
    } else {
      out.overrides.push_back(part);
    }
  }
  return out;
}

std::vector<WhatIf> usual_questions(const Situation& situation) {
  const spec::Recipe recipe = situation.recipe({});
  const catalog::System& system = *situation.system;
  const catalog::Chip& chip = system.chip;
  std::vector<WhatIf> list;
  if (recipe.parallel.world() > system.chips_per_node) {
    add(list, "twice the network", {});
    list.back().network_factor = 2;
  }
  if (recipe.parallel.world() > 1) {
    add(list, "twice the link", {});
    list.back().link_factor = 2;
  }
  add(list, "twice the memory bandwidth", {});
  list.back().memory_factor = 2;
  for (const catalog::Chip& other : situation.catalog->chips) {
    if (other.generation != chip.generation || other.name == chip.name) continue;
    add(list, fmt::format("{} instead of {}", other.name, chip.name), {});
    list.back().chip = other.name;
  }
  for (const auto& [name, precision] : spec::kPrecisionNames) {
    if (precision == recipe.precision || precision == spec::Precision::f32) continue;
    add(list, name, {"precision=" + name});
  }
  for (const auto& [name, mode] : spec::kRecomputeNames) {
    if (mode == recipe.recompute.mode) continue;
    add(list, (mode == spec::RecomputeMode::none ? "no" : name) + " recomputation",
        {"recompute=" + name});
  }
  const int64_t micro = recipe.batch.micro;
  if (micro > 1 && micro % 2 == 0) {
    add(list, "half the micro-batch", {fmt::format("batch.micro={}", micro / 2)});
  }
  if (recipe.batch.global % (2 * micro * recipe.parallel.dp) == 0) {
    add(list, "twice the micro-batch", {fmt::format("batch.micro={}", 2 * micro)});
  }
  add(list, "no failures", {});
  list.back().failures = false;
  return list;
}

Outcome ask(const Situation& situation, const WhatIf& what_if) {
  Outcome out;
  out.name = what_if.name;
  try {
    const spec::Recipe recipe = situation.recipe(what_if.overrides);
    catalog::System system =
        what_if.system.empty() ? *situation.system : situation.catalog->system(what_if.system);
    if (!what_if.chip.empty()) system.chip = situation.catalog->chip(what_if.chip);
    for (size_t i = 0; i < system.tiers.size(); ++i) {
      system.tiers[i].bytes_per_second *= i == 0 ? what_if.link_factor : what_if.network_factor;
    }
    system.chip.memory_bytes_per_second *= what_if.memory_factor;
    const int64_t chips = recipe.parallel.world();
    if (system.largest_chips > 0 && chips > system.largest_chips) {
      fail(ErrorKind::usage, "{} has {} chips", system.name, system.largest_chips);
    }
    const Constants constants = constants_for(*situation.sets, system.chip, situation.software);
    PipelineSimulator simulator;
    Predictor predictor(system, constants, simulator);
    const spec::Profile profile = profile_on(*situation.profile, recipe, system.chip);
    out.step = predictor.step(recipe, profile);
    out.step.bottleneck =
        savings(recipe, profile, system, constants, out.step, simulator).front().resource;
    out.memory = predict_memory(recipe, profile, system, constants);
    out.constants = constants.name;
    const double work = out.step.step_seconds * static_cast<double>(recipe.train.steps);
    const int64_t nodes = (chips + system.chips_per_node - 1) / system.chips_per_node;
    out.run_seconds =
        what_if.failures ? forecast_failures(situation.failures, nodes, work).wall_seconds : work;
  } catch (const Error& error) {
    out.impossible = error.what();
  }
  return out;
}

std::vector<std::string> outcome_titles() {
  return {"what if", "step", "change", "run", "change", "limited by", "memory", "fits"};
}

std::vector<std::string> outcome_cells(const Outcome& outcome, const Outcome& as_it_is) {
  if (!outcome.impossible.empty())
    return {outcome.name, "-", "-", "-", "-", "-", "-", "impossible"};
  return {outcome.name,
          format_seconds(outcome.step.step_seconds),
          change(outcome.step.step_seconds, as_it_is.step.step_seconds),
          format_seconds(outcome.run_seconds),
          change(outcome.run_seconds, as_it_is.run_seconds),
          outcome.step.bottleneck,
          format_bytes(outcome.memory.bytes),
          outcome.memory.fits ? "yes" : "NO"};
}

std::string format_outcomes(const std::vector<Outcome>& outcomes) {
  std::vector<std::vector<std::string>> rows = {outcome_titles()};
  std::string reasons;
  for (const Outcome& outcome : outcomes) {
    rows.push_back(outcome_cells(outcome, outcomes.front()));
    if (!outcome.impossible.empty()) {
      reasons += fmt::format("{}: {}\n", outcome.name, outcome.impossible);
    }
    if (outcome.constants.empty() || outcome.constants == outcomes.front().constants) continue;
    reasons += fmt::format("{}: with constants {}\n", outcome.name, outcome.constants);
  }
  return format_table(rows) + reasons;
}

Json to_json(const std::vector<Outcome>& outcomes) {
  const Outcome& first = outcomes.front();
  Json list = Json::array();
  for (const Outcome& outcome : outcomes) {
    if (!outcome.impossible.empty()) {
      list.push_back({{"what_if", outcome.name}, {"impossible", outcome.impossible}});
      continue;
    }
    list.push_back({{"what_if", outcome.name},
                    {"step_seconds", outcome.step.step_seconds},
                    {"step_change", outcome.step.step_seconds / first.step.step_seconds - 1},
                    {"run_seconds", outcome.run_seconds},
                    {"run_change", outcome.run_seconds / first.run_seconds - 1},
                    {"bottleneck", outcome.step.bottleneck},
                    {"mfu", outcome.step.mfu_causal},
                    {"memory_bytes_per_rank", outcome.memory.bytes},
                    {"fits", outcome.memory.fits},
                    {"constants", outcome.constants}});
  }
  return list;
}

}  // namespace tutti::plan
