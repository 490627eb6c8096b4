#include "tutti/cli/plan/options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/real.h"
#include "tutti/base/signals.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/plan/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/spec/recipe/names.h"

namespace tutti::cli {
namespace {

spec::Precision parse_precision(const std::string& name) {
  std::vector<std::string> known;
  for (const auto& [text, precision] : spec::kPrecisionNames) {
    if (text == name) return precision;
    known.push_back(text);
  }
  fail(ErrorKind::usage, "--precision: '{}' is unknown; accepted: {}", name, join(known, ", "));
}

int64_t parse_gpus(std::string_view text) {
  const int64_t count = parse_count(text, "--gpus");
  if (count < 1) {
    fail(ErrorKind::usage, "--gpus: '{}' is not accepted; write a whole number from 1", text);
  }
  return count;
}

// `first`, twice it, four times it, ... up to `last`.
void add_doublings(int64_t first, int64_t last, std::vector<int64_t>& counts) {
  for (int64_t count = first; count <= last; count *= 2) {
    counts.push_back(count);
    if (count > last / 2) break;
  }
}

// The recipe whose layouts are searched. Its own layout need not divide the batch: where it does
// not, the axes that a search sets are read as 1 but those that are kept.
spec::Recipe searched_recipe(const SearchArguments& arguments, const plan::Kept& kept) {
  try {
    return planned_recipe(arguments.recipe, arguments.overrides, 0);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    std::vector<std::string> overrides = arguments.overrides;
    overrides.emplace_back("parallel.dp=1");
    const std::pair<bool, const char*> axes[] = {
        {kept.tp, "parallel.tp=1"},   {kept.pp, "parallel.pp=1"}, {kept.vpp, "parallel.vpp=1"},
        {kept.cp, "parallel.cp=1"},   {kept.ep, "parallel.ep=1"}, {kept.zero, "parallel.zero=0"},
        {kept.micro, "batch.micro=1"}};
    for (const auto& [keeps, override] : axes) {
      if (!keeps) overrides.emplace_back(override);
    }
    try {
      return planned_recipe(arguments.recipe, overrides, 0);
    } catch (const Error&) {
      throw error;  // the first says it in the words of the recipe
    }
  }
}

// Throws unsupported where the chip has none of `precisions`; empty: any.
void check_precisions(const catalog::Chip& chip, const std::vector<spec::Precision>& precisions) {
  if (chip.bf16_flops <= 0) catalog::check_precision(chip, spec::Precision::bf16);
  if (precisions.empty()) return;
  const auto has = [&](spec::Precision each) { return catalog::product_flops(chip, each) > 0; };
  if (std::none_of(precisions.begin(), precisions.end(), has)) {
    catalog::check_precision(chip, precisions.front());
  }
}

}  // namespace

void add_failure_options(CLI::App& command, plan::FailureModel& failures) {
  command
      .add_option("--node-failures-per-day", failures.per_node_per_day,
                  "Interruptions per node and day")
      ->check(between(0, 1e6))
      ->capture_default_str();
  command
      .add_option("--job-failures-per-day", failures.per_job_per_day,
                  "Interruptions per day that do not grow with nodes")
      ->check(between(0, 1e6))
      ->capture_default_str();
  command
      .add_option("--checkpoint-seconds", failures.interval_seconds,
                  "Between checkpoints in storage; 0: the best (Daly)")
      ->check(between(0, 1e9))
      ->capture_default_str();
  command
      .add_option("--save-seconds", failures.save_seconds,
                  "That a checkpoint in storage blocks training")
      ->check(between(1e-3, 1e9))
      ->capture_default_str();
  command
      .add_option("--restart-seconds", failures.restart_seconds,
                  "From an interruption to training again: detect, replace, start, load")
      ->check(between(0, 1e9))
      ->capture_default_str();
  command
      .add_option("--partial-restart-share", failures.partial_share,
                  "Share of interruptions after which only what failed starts again")
      ->check(between(0, 1))
      ->capture_default_str();
  command
      .add_option("--partial-restart-seconds", failures.partial_restart_seconds,
                  "That such a restart takes")
      ->check(between(0, 1e9))
      ->capture_default_str();
  command
      .add_option("--memory-checkpoint-share", failures.memory_share,
                  "Share of interruptions survived by copies in other nodes' memory; 0: no copies")
      ->check(between(0, 1))
      ->capture_default_str();
  command
      .add_option("--memory-save-seconds", failures.memory_save_seconds,
                  "That such a copy blocks training")
      ->check(between(1e-3, 1e9))
      ->capture_default_str();
}

void add_search_options(CLI::App& command, SearchArguments& arguments) {
  command.add_option("RECIPE", arguments.recipe, "Recipe file or name")->required();
  command.add_option("OVERRIDES", arguments.overrides, "key=value, such as batch.global=1536");
  command.add_option("--system", arguments.systems, "Systems of the catalog (plan systems)")
      ->delimiter(',')
      ->allow_extra_args(false)  // overrides may follow
      ->required();
  command
      .add_option("--gpus", arguments.gpus,
                  "Numbers of GPUs: 1024, or 512,1024, or 8..4096 (each twice the one before)")
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      .add_option("--max-gpus", arguments.max_gpus,
                  "Most GPUs; without --gpus: all doublings of a node up to it")
      ->check(at_least(1));
  command
      .add_option("--keep", arguments.keep,
                  "Axes that stay as the recipe has them: " + join(plan::axis_names(), ", "))
      ->delimiter(',')
      ->allow_extra_args(false);
  command
      .add_option("--precision", arguments.precisions,
                  "Precisions to choose from; default: all that the chip has")
      ->delimiter(',')
      ->allow_extra_args(false);
  command.add_option("--tokens", arguments.tokens,
                     "Tokens of the run, such as 300B; default: those of the recipe's train.steps");
  add_profile_option(command, arguments.profile);
  command.add_option("--software", arguments.software, "Software whose fitted constants to use");
  command.add_option("--site", arguments.site, "Where it runs: PUE, water, grid, power of a rack")
      ->capture_default_str();
  add_price_option(command, arguments.price);
  add_failure_options(command, arguments.failures);
  add_catalog_option(command, arguments.catalog);
  add_json_option(command, arguments.json);
}

std::vector<int64_t> parse_gpu_counts(const std::vector<std::string>& texts) {
  std::vector<int64_t> counts;
  for (const std::string& text : texts) {
    const size_t dots = text.find("..");
    if (dots == std::string::npos) {
      counts.push_back(parse_gpus(text));
      continue;
    }
    const int64_t first = parse_gpus(std::string_view(text).substr(0, dots));
    const int64_t last = parse_gpus(std::string_view(text).substr(dots + 2));
    if (first > last) {
      fail(ErrorKind::usage, "--gpus: '{}' ends before it begins; write {}..{}", text, last, first);
    }
    add_doublings(first, last, counts);
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

plan::Constants SearchInputs::constants(const catalog::System& system,
                                        const std::string& software) const {
  return plan::constants_for(sets, system.chip, software);
}

plan::RunTerms SearchInputs::terms_on(const catalog::System& system) const {
  plan::RunTerms out = terms;
  out.price_kind = catalog::price_kind_of(catalog.price_of(system.name), price);
  return out;
}

SearchInputs load_search_inputs(const SearchArguments& arguments) {
  FileSystem& files = posix_file_system();
  const std::vector<std::string> folders = catalog_folders(arguments.catalog);
  SearchInputs inputs;
  inputs.catalog = catalog::load_catalog(files, folders);
  inputs.sets = plan::load_constants(files, folders);
  check_software(inputs.sets, arguments.software);
  for (const std::string& name : arguments.systems) {
    inputs.systems.push_back(&inputs.catalog.system(name));
  }
  inputs.profile = &spec::find_profile(arguments.profile);
  inputs.terms.site = inputs.catalog.site(arguments.site);
  inputs.price = arguments.price;
  catalog::price_kind_of(nullptr, inputs.price);  // refuses what it does not know
  inputs.terms.failures = arguments.failures;
  for (const std::string& axis : arguments.keep) plan::keep_axis(inputs.options.kept, axis);
  inputs.recipe = searched_recipe(arguments, inputs.options.kept);
  const double tokens_per_step =
      real(inputs.recipe.batch.global) * real(inputs.recipe.batch.sequence);
  inputs.terms.steps = real(inputs.recipe.train.steps);
  if (!arguments.tokens.empty()) {
    const int64_t tokens = parse_count(arguments.tokens, "--tokens");
    if (tokens < 1) {
      fail(ErrorKind::usage, "--tokens: '{}' is not accepted; write a number from 1, such as 300B",
           arguments.tokens);
    }
    inputs.terms.steps = std::ceil(real(tokens) / tokens_per_step);
  }
  inputs.tokens = inputs.terms.steps * tokens_per_step;
  for (const std::string& name : arguments.precisions) {
    const spec::Precision precision = parse_precision(name);
    std::vector<spec::Precision>& all = inputs.options.precisions;
    if (std::find(all.begin(), all.end(), precision) == all.end()) all.push_back(precision);
  }
  for (const catalog::System* system : inputs.systems) {
    check_precisions(system->chip, inputs.options.precisions);
  }
  return inputs;
}

std::vector<int64_t> gpu_counts(const SearchArguments& arguments, const catalog::System& system) {
  const int64_t most = system.largest_chips;
  if (arguments.gpus.empty() && arguments.max_gpus == 0) {
    fail(ErrorKind::usage,
         "--gpus: missing; write a number such as 1024, a range such as 8..4096, "
         "or --max-gpus N");
  }
  std::vector<int64_t> counts = parse_gpu_counts(arguments.gpus);
  if (counts.empty()) {
    const int64_t last = most > 0 ? std::min(most, arguments.max_gpus) : arguments.max_gpus;
    add_doublings(std::min(system.chips_per_node, last), last, counts);
    return counts;
  }
  if (arguments.max_gpus > 0) {
    std::erase_if(counts, [&](int64_t count) { return count > arguments.max_gpus; });
    if (counts.empty()) {
      fail(ErrorKind::usage, "--max-gpus: {} is below every number of --gpus", arguments.max_gpus);
    }
  }
  if (most > 0 && counts.back() > most) {
    fail(ErrorKind::usage, "--gpus: {} are more than the {} that {} has", counts.back(), most,
         system.name);
  }
  return counts;
}

plan::SearchResult Searcher::search(const SearchInputs& inputs, const catalog::System& system,
                                    const plan::Constants& constants, const spec::Recipe& recipe,
                                    int64_t gpus) {
  const int64_t before = totals_.ticks;
  plan::SearchResult result =
      plan::search_layouts(recipe, *inputs.profile, system, constants, gpus, inputs.options,
                           [&](const plan::SearchCounts& counts) {
                             progress_.update(before + counts.ticks, 0);
                             signal_ = stop_signal();
                             return signal_ == 0;
                           });
  totals_ += result.counts;
  return result;
}

std::string counts_text(const plan::SearchCounts& counts) {
  const auto number = [](int64_t count) { return format_count(real(count)); };
  std::string text = fmt::format(
      "{} layouts: {} do not divide, {} need too much memory, {} cannot be among the best ({} by "
      "the bound of their group alone), {} played\n{} layouts/s judged, {}/s played, on one core",
      number(counts.considered), number(counts.indivisible), number(counts.memory),
      number(counts.bound), number(counts.judged_by_group), number(counts.played),
      format_count(counts.judged_per_second()), format_count(counts.played_per_second()));
  if (!counts.complete) text += "; stopped before all of them were seen";
  return text;
}

Json counts_json(const plan::SearchCounts& counts) {
  return {{"considered", counts.considered},
          {"indivisible", counts.indivisible},
          {"memory", counts.memory},
          {"bound", counts.bound},
          {"played", counts.played},
          {"judged", counts.judged},
          {"judged_by_group", counts.judged_by_group},
          {"judge_seconds", counts.judge_seconds},
          {"play_seconds", counts.play_seconds},
          {"judged_per_second", counts.judged_per_second()},
          {"played_per_second", counts.played_per_second()},
          {"complete", counts.complete}};
}

Json choice_json(const plan::Choice& choice, const spec::Recipe& recipe) {
  const plan::StepPrediction& step = choice.found.step;
  const plan::Bill& bill = choice.bill;
  return {{"system", choice.system->name},
          {"gpus", choice.gpus},
          {"layout", plan::layout_text(choice.found.layout)},
          {"overrides", plan::layout_overrides(choice.found.layout)},
          {"recipe_yaml", plan::layout_yaml(choice.found.layout, recipe.batch)},
          {"fits", choice.fits},
          {"step_seconds", step.step_seconds},
          {"split_seconds", split_json(step.split)},
          {"bottleneck", step.bottleneck},
          {"tokens_per_second_per_gpu", step.tokens_per_second_per_chip},
          {"mfu", step.mfu_causal},
          {"memory_bytes_per_rank", choice.found.memory.bytes},
          {"run_seconds", choice.forecast.wall_seconds},
          {"goodput", choice.forecast.goodput},
          {"cost_usd", bill.usd ? Json(*bill.usd) : Json(nullptr)},
          {"energy_kwh", bill.facility_kwh},
          {"co2e_kg", bill.co2e_kg},
          {"rack_watts", choice.rack_watts ? Json(*choice.rack_watts) : Json(nullptr)}};
}

std::vector<std::string> choice_header() {
  return {"system", "GPUs", "step", "MFU", "memory", "run", "USD", "MWh", "layout"};
}

std::vector<std::string> choice_cells(const plan::Choice& choice) {
  const plan::StepPrediction& step = choice.found.step;
  return {choice.system->name,
          fmt::format("{}", choice.gpus),
          fmt::format("{:.4g} s", step.step_seconds),
          fmt::format("{:.1f}%", 100 * step.mfu_causal),
          format_bytes(choice.found.memory.bytes) + (choice.fits ? "" : " (too much)"),
          format_seconds(choice.forecast.wall_seconds),
          choice.bill.usd ? format_count(*choice.bill.usd) : "-",
          std::isnan(choice.bill.facility_kwh)
              ? "-"
              : fmt::format("{:.4g}", choice.bill.facility_kwh / 1e3),
          plan::layout_text(choice.found.layout)};
}

void fail_no_layout(const spec::Recipe& recipe, int64_t gpus) {
  fail(ErrorKind::usage,
       "--gpus: no layout of this recipe has {} ranks: tp, cp and pp must leave a dp that divides "
       "batch.global {} (layers {}, heads {}, sequence {}); change batch.global, the number of "
       "GPUs or what --keep keeps",
       gpus, recipe.batch.global, recipe.model.layers, recipe.model.heads, recipe.batch.sequence);
}

}  // namespace tutti::cli
