#include <cmath>
#include <memory>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/commands.h"
#include "tutti/cli/common.h"
#include "tutti/cli/progress_bar.h"
#include "tutti/train/evaluate.h"

namespace tutti::cli {
namespace {

struct EvalArguments {
  std::string run;
  std::string data;
  bool best = false;
  bool json = false;
};

int run_eval(const EvalArguments& arguments) {
  FileSystem& files = posix_file_system();
  const train::LoadedRun run = train::load_run(files, arguments.run, arguments.best);
  const spec::CorpusBlend blend =
      arguments.data.empty() ? run.recipe.data.validation : spec::CorpusBlend(arguments.data);
  if (blend.empty()) {
    fail(ErrorKind::usage, "'{}' was trained without a validation set; give one: --data PREFIX",
         arguments.run);
  }
  const std::string prefix = spec::blend_text(blend);
  ProgressBar progress("evaluate", "micro-batches");
  const train::RunEvaluation result = train::evaluate_run(
      files, run, blend, [&](int64_t done, int64_t total) { progress.update(done, total); });
  progress.finish();
  const double perplexity = std::exp(result.loss);
  const double rate = static_cast<double>(result.tokens) / result.seconds;
  if (arguments.json) {
    print_json({{"run", arguments.run},
                {"checkpoint", run.checkpoint},
                {"step", run.step},
                {"data", prefix},
                {"loss", result.loss},
                {"perplexity", perplexity},
                {"bits_per_token", result.loss / std::log(2.0)},
                {"tokens", result.tokens},
                {"seconds", result.seconds},
                {"tokens_per_second", rate}});
  } else {
    print_text(format_pairs({{"checkpoint", run.checkpoint},
                             {"data", prefix},
                             {"loss", fmt::format("{:.4f} nats per token", result.loss)},
                             {"perplexity", fmt::format("{:.3f}", perplexity)},
                             {"tokens", format_count(static_cast<double>(result.tokens))},
                             {"speed", format_rate(rate, "tokens")}}));
  }
  return exit_ok;
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<EvalArguments>();
  CLI::App* command = app.add_subcommand("eval", "Loss and perplexity of a run on a corpus");
  command->add_option("RUN", arguments->run, "Run folder, or one checkpoint folder in it")
      ->required();
  command->add_option("--data", arguments->data, "Corpus; default the run's validation set")
      ->type_name("PREFIX");
  command->add_flag("--best", arguments->best,
                    "The checkpoint of the lowest validation loss, not the newest");
  add_json_option(*command, arguments->json);
  command->footer(
      "Example:\n  tutti eval runs/demo-20260131-120000 --data corpora/books-validation");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_eval(*arguments); }; });
}

}  // namespace tutti::cli
