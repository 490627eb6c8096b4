// Options and output that search and scaling share.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/catalog/catalog.h"
#include "tutti/cli/plan/assumed_site.h"
#include "tutti/plan/choice.h"
#include "tutti/plan/constants.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/telemetry/sinks/progress_bar.h"

namespace tutti::cli {

// What every search reads from the command line.
struct SearchArguments {
  std::string recipe;
  std::vector<std::string> overrides;
  std::vector<std::string> systems;
  std::vector<std::string> gpus;
  std::vector<std::string> keep;
  std::vector<std::string> precisions;
  std::string catalog;
  std::string profile = "megatron-te";
  std::string software;
  std::string site = kAssumedSite;
  std::string price;
  std::string tokens;
  int64_t max_gpus = 0;
  plan::FailureModel failures;
  bool json = false;
};
void add_search_options(CLI::App& command, SearchArguments& arguments);
void add_failure_options(CLI::App& command, plan::FailureModel& failures);

// "8", "8,16,24" (already split) or "8..4096": each twice the one before. Ascending, without
// repeats. Throws usage naming what is accepted.
std::vector<int64_t> parse_gpu_counts(const std::vector<std::string>& texts);

// The planner's inputs, loaded and checked.
struct SearchInputs {
  catalog::Catalog catalog;
  std::vector<plan::Constants> sets;
  spec::Recipe recipe;
  const spec::Profile* profile = nullptr;
  std::vector<const catalog::System*> systems;
  plan::RunTerms terms;
  plan::SearchOptions options;
  double tokens = 0;  // of the run
  std::string price;  // the kind asked for; empty: what each system has

  // The terms on `system`: its kind of price.
  plan::RunTerms terms_on(const catalog::System& system) const;

  plan::Constants constants(const catalog::System& system, const std::string& software) const;
};
SearchInputs load_search_inputs(const SearchArguments& arguments);

// GPU counts to search on `system`: as asked, else from a node to max_gpus by doubling. Throws
// usage for more than the system or --max-gpus has.
std::vector<int64_t> gpu_counts(const SearchArguments& arguments, const catalog::System& system);

// Searches and keeps the totals of all searches; a bar beyond two seconds, and Ctrl-C ends it with
// what has been found so far.
class Searcher {
 public:
  Searcher() : progress_("search", "layouts") {}
  plan::SearchResult search(const SearchInputs& inputs, const catalog::System& system,
                            const plan::Constants& constants, const spec::Recipe& recipe,
                            int64_t gpus);
  const plan::SearchCounts& totals() const { return totals_; }
  int signal() const { return signal_; }  // that stopped it, or 0
  void finish() { progress_.finish(); }

 private:
  telemetry::ProgressBar progress_;
  plan::SearchCounts totals_;
  int signal_ = 0;
};

// One line of what was searched and how fast.
std::string counts_text(const plan::SearchCounts& counts);
Json counts_json(const plan::SearchCounts& counts);

Json choice_json(const plan::Choice& choice, const spec::Recipe& recipe);
// Headers and cells of a table of choices.
std::vector<std::string> choice_header();
std::vector<std::string> choice_cells(const plan::Choice& choice);

// The message for a number of GPUs onto which the recipe cannot be laid out.
[[noreturn]] void fail_no_layout(const spec::Recipe& recipe, int64_t gpus);

}  // namespace tutti::cli
