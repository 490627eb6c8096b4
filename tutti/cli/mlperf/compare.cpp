#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/catalog/chip_names.h"
#include "tutti/cli/mlperf/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/mlperf/claim.h"
#include "tutti/mlperf/compare_page.h"

namespace tutti::cli {
namespace {

struct CompareArguments {
  std::string a;
  std::string b;
  std::string ruleset;
  std::string html;  // file to write the page to; "": none
  bool json = false;
};

mlperf::Score one_score(const std::string& path, const std::string& ruleset) {
  auto scores = mlperf_scores({path}, ruleset);
  if (scores.size() != 1) {
    fail(ErrorKind::usage, "'{}' holds {} results; name one folder of result_N.txt", path,
         scores.size());
  }
  return std::move(scores[0]);
}

// The row of published results that NAME means: ROUND/SUBMITTER/SYSTEM[/BENCHMARK] or its source.
const catalog::PublishedResult& find_row(const std::vector<catalog::PublishedResult>& rows,
                                         const std::string& name) {
  std::vector<const catalog::PublishedResult*> found;
  for (const catalog::PublishedResult& row : rows) {
    const std::string path =
        fmt::format("{}/{}/{}/{}", row.round, row.submitter, row.system, row.benchmark);
    if (row.source == name || path == name || starts_with(path, name + "/")) found.push_back(&row);
  }
  if (found.size() == 1) return *found[0];
  if (found.empty()) {
    fail(ErrorKind::not_found,
         "'{}' is neither a folder of result_N.txt nor a published result; those are named "
         "ROUND/SUBMITTER/SYSTEM/BENCHMARK, such as {}/{}/{}/{}",
         name, rows.empty() ? "v5.1" : rows.back().round,
         rows.empty() ? "NVIDIA" : rows.back().submitter,
         rows.empty() ? "SYSTEM" : rows.back().system,
         rows.empty() ? "llama31_8b" : rows.back().benchmark);
  }
  fail(ErrorKind::usage, "'{}' names {} published results; the first two are {} and {}", name,
       found.size(), found[0]->source, found[1]->source);
}

// A name is a row of published results only where there is no such folder.
mlperf::ComparedSide read_side(const std::string& path, const std::string& ruleset,
                               const mlperf::ClaimBasis& basis) {
  const bool folder = posix_file_system().is_directory(path);
  mlperf::ComparedSide side = folder ? mlperf::side_of(one_score(path, ruleset))
                                     : mlperf::side_of(find_row(basis.published, path));
  const catalog::Chip* chip = catalog::find_chip(basis.catalog, side.result.chip);
  if (chip != nullptr) side.result.chip = chip->name;
  return side;
}

int run_compare(const CompareArguments& arguments) {
  const mlperf::ClaimBasis basis = load_claim_basis({});
  mlperf::ComparedSide a = read_side(arguments.a, arguments.ruleset, basis);
  mlperf::ComparedSide b = read_side(arguments.b, arguments.ruleset, basis);
  const mlperf::Comparison comparison = mlperf::compare_sides(std::move(a), std::move(b));
  if (!arguments.html.empty()) {
    write_file_atomic(posix_file_system(), arguments.html,
                      report::render(mlperf::comparison_page(comparison)));
    print_message(arguments.html + " written\n");
  }
  if (arguments.json) print_json(mlperf::to_json(comparison));
  else print_text(mlperf::format_comparison(comparison));
  return exit_ok;
}

}  // namespace

void add_mlperf_compare(CLI::App& group, Action& action) {
  CLI::App* compare = group.add_subcommand("compare", "Explain why two results differ");
  const auto arguments = std::make_shared<CompareArguments>();
  compare->add_option("A", arguments->a, "Folder of result_N.txt, or a published result")
      ->required();
  compare->add_option("B", arguments->b, "Result to compare with, in the same form")->required();
  compare->add_option("--ruleset", arguments->ruleset, "As in score");
  compare->add_option("--html", arguments->html, "Write a page with both timelines")
      ->type_name("FILE");
  add_json_option(*compare, arguments->json);
  compare->footer(
      "The ratio of minutes is split into factors that multiply to it: throughput per "
      "accelerator,\n"
      "accelerators, samples to target, evaluation, start-up, scaling. Above 1: A is slower.\n\n"
      "A published result is named ROUND/SUBMITTER/SYSTEM/BENCHMARK. It is a row without runs:\n"
      "throughput of both is then measured from start to end.\n\n"
      "Example:\n  tutti mlperf compare v4.1/Oracle/512xH100/llama2_70b_lora v4.1/Azure/512xH200/"
      "llama2_70b_lora");
  compare->callback(
      [arguments, &action] { action = [arguments] { return run_compare(*arguments); }; });
}

}  // namespace tutti::cli
