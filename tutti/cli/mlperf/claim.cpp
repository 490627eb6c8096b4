#include "tutti/mlperf/claim.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/catalog/catalog.h"
#include "tutti/catalog/published.h"
#include "tutti/cli/mlperf/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/launch/home.h"
#include "tutti/mlperf/claim_text.h"
#include "tutti/mlperf/import.h"

namespace tutti::cli {
namespace {

struct ClaimArguments {
  std::string text;
  mlperf::Claim claim;
  std::string cost;
  std::string speedup;
  std::vector<std::string> published;  // further files
  bool json = false;
};

struct ClaimImportArguments {
  std::vector<std::string> paths;
  std::string ruleset;
  std::string out;
  bool json = false;
};

// Each option wins over the text; what neither gives is asked for.
mlperf::Claim read_arguments(const ClaimArguments& arguments, const mlperf::ClaimBasis& basis) {
  mlperf::Claim claim;
  if (!arguments.text.empty()) mlperf::read_claim(arguments.text, basis, claim);
  const mlperf::Claim& options = arguments.claim;
  if (!options.benchmark.empty()) claim.benchmark = options.benchmark;
  if (!options.chip.empty()) claim.chip = options.chip;
  if (options.accelerators > 0) {
    claim.accelerators = options.accelerators;
    claim.accelerators_or = 0;
  }
  if (options.minutes) {
    claim.minutes = options.minutes;
    claim.rounding_minutes = mlperf::rounding_of(fmt::format("{}", *options.minutes));
  }
  // Costs and factors are read as in texts: "$50,000", "2.3x", or plain numbers.
  const auto from_text = [&](std::string text, const char* option, auto member) {
    if (text.empty()) return;
    mlperf::Claim read;
    mlperf::read_claim(text, basis, read);
    if (!(read.*member)) {
      fail(ErrorKind::usage, "{} '{}': write an amount such as $50,000 or a factor such as 2.3x",
           option, text);
    }
    claim.*member = read.*member;
  };
  const bool plain_cost = !arguments.cost.empty() && arguments.cost[0] != '$';
  from_text((plain_cost ? "$" : "") + arguments.cost, "--cost", &mlperf::Claim::cost_usd);
  const bool plain_factor = !arguments.speedup.empty() && !ends_with(arguments.speedup, "x");
  from_text(arguments.speedup + (plain_factor ? "x" : ""), "--speedup", &mlperf::Claim::speedup);
  std::vector<std::string> missing;
  if (claim.benchmark.empty()) missing.emplace_back("a model (175B, --model)");
  if (claim.accelerators == 0) missing.emplace_back("a number of accelerators (--accelerators)");
  if (claim.chip.empty()) missing.emplace_back("a chip (H100, --chip)");
  if (!claim.minutes && !claim.speedup) missing.emplace_back("a time (9.87min, --minutes)");
  if (!missing.empty()) {
    fail(ErrorKind::usage, "the claim lacks {}", join(missing, ", "));
  }
  return claim;
}

void print_assessment(const mlperf::ClaimAssessment& assessment) {
  std::string text;
  for (const std::string& line : assessment.arithmetic) text += line + "\n";
  std::vector<std::vector<std::string>> rows = {
      {"nearest published", "accelerators", "minutes", "samples", "TFLOP/s each"}};
  for (const mlperf::NearRow& row : assessment.nearest) {
    rows.push_back(
        {fmt::format("{} {} {}", row.result.round, row.result.submitter, row.result.system),
         fmt::format("{} {}", row.result.accelerators, row.result.accelerator),
         fmt::format("{:.3f}", row.result.minutes),
         fmt::format("{:.0f}", row.result.samples_to_target),
         fmt::format("{:.0f}", row.tflops_per_accelerator)});
  }
  print_text(text + "\n" + format_table(rows) + "\n" + mlperf::verdict_name(assessment.verdict) +
             ": " + assessment.sentence + "\n");
}

int run_claim(const ClaimArguments& arguments) {
  const mlperf::ClaimBasis basis = load_claim_basis(arguments.published);
  const auto assessment = mlperf::assess_claim(read_arguments(arguments, basis), basis);
  if (arguments.json) print_json(mlperf::to_json(assessment));
  else print_assessment(assessment);
  switch (assessment.verdict) {
    case mlperf::Verdict::possible: return exit_ok;
    case mlperf::Verdict::never_seen: return kNoVerdict;
    case mlperf::Verdict::impossible: break;
  }
  return kImpossible;
}

int run_import(const ClaimImportArguments& arguments) {
  FileSystem& files = posix_file_system();
  const std::string out =
      arguments.out.empty() ? join_path(own_published_folder(), "imported.csv") : arguments.out;
  std::vector<catalog::PublishedResult> results;
  if (files.exists(out)) results = catalog::parse_published(read_file(files, out), out);
  int64_t imported = 0;
  int64_t skipped = 0;
  bool only_too_fast = true;
  Json refused = Json::array();
  for (const FoundResult& found : find_mlperf_results(arguments.paths, arguments.ruleset)) {
    const std::string& path = found.score.path;
    // What was imported before is replaced, also where it would be refused now.
    results.erase(std::remove_if(results.begin(), results.end(),
                                 [&](const auto& r) { return r.source == path; }),
                  results.end());
    mlperf::ImportedResult result = mlperf::import_result(files, found.folder, *found.ruleset,
                                                          !arguments.ruleset.empty(), found.score);
    if (!result.row) {
      print_message(fmt::format("{}: not imported: {}\n", path, result.reason));
      refused.push_back({{"path", path}, {"reason", result.reason}});
      only_too_fast = only_too_fast && result.too_fast;
      ++skipped;
      continue;
    }
    results.push_back(std::move(*result.row));
    ++imported;
  }
  files.create_directories(parent_path(out));
  write_file_atomic(files, out, catalog::format_published(results));
  if (arguments.json) {
    print_json({{"file", out},
                {"imported", imported},
                {"skipped", skipped},
                {"refused", std::move(refused)},
                {"results", results.size()}});
  } else {
    print_text(fmt::format("{}: {} imported, {} refused, {} results in all\n", out, imported,
                           skipped, results.size()));
  }
  if (skipped == 0) return exit_ok;
  return only_too_fast ? kTooFast : static_cast<int>(exit_failed);
}

}  // namespace

void add_mlperf_claim(CLI::App& group, Action& action) {
  CLI::App* claim = group.add_subcommand("claim", "Check whether a claimed record is possible");
  const auto arguments = std::make_shared<ClaimArguments>();
  claim->add_option("TEXT", arguments->text, "The claim, in words");
  claim->add_option("--model", arguments->claim.benchmark, "175B, 405B, 8B, 70B or a benchmark");
  claim->add_option("--accelerators", arguments->claim.accelerators, "How many")
      ->check(at_least(1));
  claim->add_option("--chip", arguments->claim.chip, "A chip of the catalog, such as H100");
  claim->add_option("--minutes", arguments->claim.minutes, "Time to target")
      ->check(between(1e-6, 1e9));
  claim->add_option("--cost", arguments->cost, "Claimed cost in USD");
  claim->add_option("--speedup", arguments->speedup,
                    "Instead of a time: speedup over the best published rate");
  claim->add_option("--published", arguments->published,
                    "Further files of published results (CSV, as import writes them)");
  add_json_option(*claim, arguments->json);
  claim->footer(
      "Possible: published at this size, or no faster per accelerator than what was.\n"
      "Impossible: above the chip's dense peak. Never seen: between the two.\n"
      "Exit code 0: possible; 3: never seen; 5: impossible.\n\n"
      "Example:\n  tutti mlperf claim \"175B 1024 H100 9.87min\"");
  claim->callback([arguments, &action] { action = [arguments] { return run_claim(*arguments); }; });

  CLI::App* import = group.add_subcommand("import", "Add scored results to your published ones");
  const auto imports = std::make_shared<ClaimImportArguments>();
  import->add_option("PATH", imports->paths, "Folders of result_N.txt, or parents of such folders")
      ->required();
  import->add_option("--ruleset", imports->ruleset, "As in score");
  import->add_option("--out", imports->out,
                     "CSV to add to; default published/imported.csv in your data folder");
  add_json_option(*import, imports->json);
  import->footer(
      "`tutti mlperf claim` reads your data folder (~/.local/share/tutti) and the catalog. Only\n"
      "results of the closed division that comply are imported; the others are named. Exit code 1\n"
      "if there are any; 4 if their only errors are that they converged too fast.\n\n"
      "Example:\n  tutti mlperf import training_results_v5.1/");
  import->callback([imports, &action] {
    action = [imports] { return run_import(*imports);
};
}  // namespace tutti::cli
);
}

}  // namespace tutti::cli
