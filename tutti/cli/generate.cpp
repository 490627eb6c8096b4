#include "tutti/train/generate.h"

#include <algorithm>
#include <memory>
#include <string>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/manifest.h"
#include "tutti/cli/commands.h"
#include "tutti/cli/common.h"
#include "tutti/cli/tokenizer.h"
#include "tutti/train/run_folder.h"

namespace tutti::cli {
namespace {

struct GenerateArguments {
  std::string run;
  std::string prompt;
  train::SamplingOptions sampling;
  bool best = false;
  bool json = false;
};

// Writes text as it comes. On a terminal, bytes that are not text are shown as \xNN and characters
// of several bytes wait until they are whole.
class TextStream {
 public:
  explicit TextStream(bool terminal) : terminal_(terminal) {}

  void write(std::string_view piece) {
    if (!terminal_) {
      print_text(piece);
      return;
    }
    pending_ += piece;
    const size_t whole = pending_.size() - unfinished_bytes();
    show(whole);
  }

  void finish() {
    show(pending_.size());
    print_text("\n");
  }

 private:
  void show(size_t count) {
    print_text(printable(std::string_view(pending_).substr(0, count)));
    pending_.erase(0, count);
    flush_output();
  }

  // Bytes at the end that begin a UTF-8 character without ending it.
  size_t unfinished_bytes() const {
    for (size_t back = 1; back <= std::min<size_t>(3, pending_.size()); ++back) {
      const auto byte = static_cast<unsigned char>(pending_[pending_.size() - back]);
      if ((byte & 0xc0U) == 0x80U) continue;
      const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
      return length > back ? back : 0;
    }
    return 0;
  }

  bool terminal_;
  std::string pending_;
};

std::vector<int32_t> encode_prompt(const data::Tokenizer& tokenizer, const std::string& prompt) {
  std::vector<int32_t> ids = tokenizer.encode(prompt);
  // Without a prompt: what follows the end of a document is the start of one.
  if (ids.empty() && tokenizer.end_of_document() != data::kNoToken) {
    ids.push_back(tokenizer.end_of_document());
  }
  if (ids.empty()) {
    fail(ErrorKind::usage,
         "--prompt: the tokenizer '{}' has no token that starts a text; give at "
         "least one character",
         tokenizer.name());
  }
  return ids;
}

std::string run_folder_of(const train::LoadedRun& run) {
  return parent_path(parent_path(run.checkpoint));
}

int run_generate(const GenerateArguments& arguments) {
  FileSystem& files = posix_file_system();
  const train::LoadedRun run = train::load_run(files, arguments.run, arguments.best);
  const auto tokenizer = find_tokenizer(files, run.recipe, run_folder_of(run));
  const std::vector<int32_t> prompt = encode_prompt(*tokenizer, arguments.prompt);

  const double begin = monotonic_seconds();
  std::string text;
  int64_t tokens = 0;
  TextStream stream(output_is_terminal());
  bool prompt_shown = arguments.json;  // only once the model has accepted it
  train::generate(run.recipe, run.master.data(), prompt, arguments.sampling, [&](int32_t id) {
    if (!prompt_shown) stream.write(arguments.prompt);
    prompt_shown = true;
    if (id == tokenizer->end_of_document()) return false;
    ++tokens;
    // A model may have more rows than its tokenizer has tokens; those say nothing.
    if (id >= tokenizer->vocabulary_size()) return true;
    const std::string piece = tokenizer->decode(std::span<const int32_t>(&id, 1));
    text += piece;
    if (!arguments.json) stream.write(piece);
    return true;
  });
  const double seconds = monotonic_seconds() - begin;
  if (arguments.json) {
    print_json({{"run", arguments.run},
                {"checkpoint", run.checkpoint},
                {"step", run.step},
                {"prompt", arguments.prompt},
                {"text", text},
                {"prompt_tokens", prompt.size()},
                {"tokens", tokens},
                {"seed", arguments.sampling.seed},
                {"seconds", seconds},
                {"tokens_per_second", static_cast<double>(tokens) / seconds}});
  } else {
    stream.finish();
  }
  return exit_ok;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<GenerateArguments>();
  train::SamplingOptions& sampling = arguments->sampling;
  CLI::App* command = app.add_subcommand("generate", "Continue a text with a trained run");
  command->add_option("RUN", arguments->run, "Run folder, or one checkpoint folder in it")
      ->required();
  command->add_option("--prompt", arguments->prompt, "Text to continue; default: a new document");
  command->add_option("--tokens", sampling.tokens, "Generate at most this many")
      ->capture_default_str()
      ->check(at_least(1));
  command
      ->add_option("--temperature", sampling.temperature,
                   "Below 1 sharper, above 1 wilder; 0: always the likeliest token")
      ->capture_default_str()
      ->check(between(0.0, 100.0));
  command->add_option("--top-k", sampling.top_k, "Choose among the k likeliest; 0: all")
      ->capture_default_str()
      ->check(at_least(0));
  command
      ->add_option("--top-p", sampling.top_p,
                   "Choose among the likeliest that make up this probability")
      ->capture_default_str()
      ->check(between(0.0, 1.0));
  command->add_option("--seed", sampling.seed, "Same seed, same text")->capture_default_str();
  command->add_flag("--best", arguments->best,
                    "The checkpoint of the lowest validation loss, not the newest");
  add_json_option(*command, arguments->json);
  command->footer(
      "Example:\n  tutti generate runs/demo-20260131-120000 --prompt '#include <' --temperature "
      "0.7");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_generate(*arguments); }; });
}

}  // namespace tutti::cli
