#include "tutti/data/tokenizers/train_tokenizer.h"

#include <memory>

#include "tutti/base/error.h"
#include "tutti/base/signals.h"
#include "tutti/base/units.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/telemetry/sinks/progress_bar.h"

namespace tutti::cli {
namespace {

struct TrainTokenizerArguments {
  data::TrainTokenizerOptions options;
  int64_t sample_mib = 256;
  bool json = false;
};

int train_tokenizer(TrainTokenizerArguments arguments) {
  watch_signals();
  data::TrainTokenizerOptions& options = arguments.options;
  options.sample_bytes = arguments.sample_mib << 20;
  telemetry::ProgressBar progress("read", "bytes");
  options.progress = [&](int64_t done, int64_t total) {
    throw_if_interrupted();
    progress.update(done, total);
    if (done < total) return;
    progress.finish();
    print_message("training ...\n");
  };
  const data::TrainTokenizerResult result = data::train_tokenizer(posix_file_system(), options);
  if (arguments.json) {
    print_json({{"output", options.output},
                {"kind", options.kind},
                {"vocabulary", result.vocabulary},
                {"source_bytes", result.source_bytes},
                {"lines", result.lines},
                {"line_bytes", result.line_bytes},
                {"hash", result.hash},
                {"seconds", result.seconds}});
  } else {
    print_text(format_pairs(
        {{"tokenizer",
          fmt::format("{}: {}, vocabulary {}", options.output, options.kind, result.vocabulary)},
         {"trained on",
          fmt::format("{} lines, {} of {}", format_count(static_cast<double>(result.lines)),
                      format_bytes(static_cast<double>(result.line_bytes)),
                      format_bytes(static_cast<double>(result.source_bytes)))},
         {"seconds", fmt::format("{:.1f}", result.seconds)}}));
  }
  return exit_ok;
}

}  // namespace

void add_train_tokenizer(CLI::App& data, Action& action) {
  const auto arguments = std::make_shared<TrainTokenizerArguments>();
  data::TrainTokenizerOptions& options = arguments->options;
  CLI::App* command =
      data.add_subcommand("train-tokenizer", "Train a SentencePiece tokenizer on text");
  command->add_option("SRC", options.sources, "Text files, JSON lines (.gz, .zst too) or folders")
      ->required();
  command->add_option("--out", options.output, "Write this .model")
      ->required()
      ->type_name("X.model");
  command->add_option("--vocabulary", options.vocabulary, "Tokens")->capture_default_str();
  command->add_option("--kind", options.kind, "bpe, unigram or char")->capture_default_str();
  command
      ->add_option("--include", options.include,
                   "File suffixes to read from folders, such as .txt,.md; default all")
      ->delimiter(',');
  command->add_option("--key", options.json_key, "Key of the text in JSON lines")
      ->capture_default_str();
  command
      ->add_option("--sample-mib", arguments->sample_mib,
                   "Train on this much text at most, lines from all sources")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--seed", options.seed, "Selects which lines");
  command->add_option("--threads", options.threads, "Threads; 0: one per core")
      ->capture_default_str()
      ->check(at_least(0));
  command->add_flag("--overwrite", options.overwrite, "Replace an existing file of this name");
  add_json_option(*command, arguments->json);
  command->footer(
      "Example:\n  tutti data train-tokenizer books/ --out books.model --vocabulary 8000\n"
      "  tutti data prepare books/ --out corpora/books --tokenizer books.model");
  command->callback(
      [arguments, &action] { action = [arguments] { return train_tokenizer(*arguments); }; });
}

}  // namespace tutti::cli
