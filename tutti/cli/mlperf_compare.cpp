#include <memory>
#include <string>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/cli/common.h"
#include "tutti/cli/mlperf_common.h"
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

int run_compare(const CompareArguments& arguments) {
  const mlperf::Score a = one_score(arguments.a, arguments.ruleset);
  const mlperf::Score b = one_score(arguments.b, arguments.ruleset);
  const auto benchmarks = mlperf_benchmarks();
  const auto* benchmark = catalog::find_benchmark(benchmarks, a.benchmark);
  if (benchmark == nullptr) {
    fail(ErrorKind::usage, "{}: benchmark '{}' is not in the catalog", a.path, a.benchmark);
  }
  const mlperf::Comparison comparison = mlperf::compare_results(a, b, *benchmark);
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
  CLI::App* compare = group.add_subcommand("compare", "Why do two results differ?");
  const auto arguments = std::make_shared<CompareArguments>();
  compare->add_option("A", arguments->a, "Folder of result_N.txt")->required();
  compare->add_option("B", arguments->b, "Folder to compare it with")->required();
  compare->add_option("--ruleset", arguments->ruleset, "As in score");
  compare->add_option("--html", arguments->html, "Write a page with the timelines of both")
      ->type_name("FILE");
  add_json_option(*compare, arguments->json);
  compare->footer(
      "The ratio of minutes is split into factors that multiply to it: throughput per "
      "accelerator,\n"
      "accelerators, samples to target, evaluation, start-up, scaling. Above 1: A is slower.\n\n"
      "Example:\n  tutti mlperf compare v4.1/Oracle/512xH100/llama2_70b_lora v4.1/Azure/512xH200/"
      "llama2_70b_lora");
  compare->callback(
      [arguments, &action] { action = [arguments] { return run_compare(*arguments); }; });
}

}  // namespace tutti::cli
