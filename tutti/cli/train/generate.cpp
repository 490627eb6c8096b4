#include "tutti/train/tasks/generate.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/repeated_key.h"
#include "tutti/base/text.h"
#include "tutti/checkpoint/huggingface/folder.h"
#include "tutti/checkpoint/store/manifest.h"
#include "tutti/cli/data/tokenizer.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/endpoint/model.h"
#include "tutti/object/file_system.h"
#include "tutti/telemetry/sinks/progress_bar.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::cli {
namespace {

struct GenerateArguments {
  std::string run;
  std::string prompt;
  std::string prompts;
  int64_t batch = 8;
  train::SamplingOptions sampling;
  std::string weights = "as_stored";
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

std::vector<int32_t> encode_prompt(const data::Tokenizer& tokenizer, const std::string& prompt,
                                   const std::string& where) {
  std::vector<int32_t> ids = data::encode_start(tokenizer, prompt);
  if (ids.empty()) {
    fail(ErrorKind::usage,
         "{}: the tokenizer '{}' has no token that starts a text; give at least one character",
         where, tokenizer.name());
  }
  return ids;
}

// What is continued with: a run, whose parameters are read when they are needed, or a model of
// others, which is in memory.
struct Source {
  spec::Recipe recipe;
  std::string checkpoint;  // or the model's path
  int64_t step = 0;
  std::unique_ptr<data::Tokenizer> tokenizer;
  train::LoadedRun run;
  std::unique_ptr<endpoint::LoadedModel> model;  // null for a run
};

bool is_run(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) return true;  // which says so
  if (!files.is_directory(path)) return false;
  return files.exists(train::recipe_path(path)) ||
         !files.exists(join_path(path, checkpoint::kHfConfig));
}

Source find_source(FileSystem& files, const GenerateArguments& arguments) {
  Source out;
  if (is_run(files, arguments.run)) {
    out.run = train::find_run(files, arguments.run, arguments.best);
    out.recipe = out.run.recipe;
    out.checkpoint = out.run.checkpoint;
    out.step = out.run.step;
    out.tokenizer = find_tokenizer(files, out.recipe, run_folder_of(out.run));
    return out;
  }
  if (arguments.best) {
    fail(ErrorKind::usage, "--best: '{}' is not a run, and has no checkpoints to choose from",
         arguments.run);
  }
  out.model =
      endpoint::load_model(files, arguments.run, endpoint::parse_weight_type(arguments.weights), 0);
  for (const std::string& note : out.model->notes) print_message("tutti: " + note + "\n");
  out.recipe.model = out.model->config;
  out.checkpoint = arguments.run;
  out.tokenizer = std::move(out.model->tokenizer);
  if (out.tokenizer == nullptr) {
    fail(ErrorKind::not_found,
         "'{}' has no tokenizer that Tutti reads: put its tokenizer.json there", arguments.run);
  }
  return out;
}

// The parameters, once: a checkpoint's bytes are given back as they are read.
train::GenerationWeights read_weights(FileSystem& files, Source& source, const std::string& type) {
  if (source.model != nullptr) {
    return {source.recipe, std::move(*source.model->weights)};
  }
  train::LoadedRun& run = source.run;
  std::optional<PackKind> pack;
  switch (endpoint::parse_weight_type(type)) {
    case endpoint::WeightType::as_stored: break;
    case endpoint::WeightType::f32: run.recipe.precision = spec::Precision::f32; break;
    case endpoint::WeightType::bf16: run.recipe.precision = spec::Precision::bf16; break;
    case endpoint::WeightType::int8: pack = PackKind::int8; break;
    case endpoint::WeightType::int4: pack = PackKind::int4; break;
  }
  if (pack) run.recipe.precision = spec::Precision::bf16;
  train::GenerationWeights weights(run.recipe, pack);
  train::read_parameters(
      files, run,
      [&](const spec::PlacedParam& placed, int64_t first, const std::vector<float>& values) {
        weights.set(placed, first, values);
      });
  return weights;
}

int run_generate(const GenerateArguments& arguments) {
  FileSystem& files = object::file_system();
  Source source = find_source(files, arguments);
  const data::Tokenizer* tokenizer = source.tokenizer.get();
  const std::vector<int32_t> prompt = encode_prompt(*tokenizer, arguments.prompt, "--prompt");
  const train::GenerationWeights weights = read_weights(files, source, arguments.weights);

  const double begin = monotonic_seconds();
  std::string text;
  int64_t tokens = 0;
  TextStream stream(output_is_terminal());
  bool prompt_shown = arguments.json;  // only once the model has accepted it
  train::generate(weights, prompt, arguments.sampling, [&](int32_t id) {
    if (!prompt_shown) stream.write(arguments.prompt);
    prompt_shown = true;
    if (id == tokenizer->end_of_document()) return false;
    ++tokens;
    // A model may have more rows than its tokenizer has tokens; those say nothing.
    if (id >= tokenizer->vocabulary_size()) return true;
    const std::string piece = tokenizer->decode_rest(std::span<const int32_t>(&id, 1));
    text += piece;
    if (!arguments.json) stream.write(piece);
    return true;
  });
  const double seconds = monotonic_seconds() - begin;
  if (arguments.json) {
    print_json({{"run", arguments.run},
                {"checkpoint", source.checkpoint},
                {"step", source.step},
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

// One prompt of a file: a line of text, or of JSON lines (*.jsonl) a string or {"prompt": text}.
struct FilePrompt {
  std::string text;
  std::string where;  // FILE:LINE
};

std::vector<FilePrompt> read_prompts(FileSystem& files, const std::string& path) {
  const std::string text = read_file(files, path);
  std::string_view lines = text;
  if (ends_with(lines, "\n")) lines.remove_suffix(1);
  const bool json = ends_with(path, ".jsonl");
  std::vector<FilePrompt> prompts;
  int64_t number = 0;
  for (std::string_view line : split(lines, '\n')) {
    const std::string where = fmt::format("{}:{}", path, ++number);
    if (!json) {
      if (ends_with(line, "\r")) line.remove_suffix(1);
      prompts.push_back({std::string(line), where});
      continue;
    }
    if (trim(line).empty()) continue;
    const Json value = parse_unique_json(line, where);
    prompts.push_back({value.is_string() ? value.get<std::string>()
                                         : json_get<std::string>(value, "prompt", where),
                       where});
  }
  if (text.empty() || prompts.empty()) fail(ErrorKind::usage, "{}: no prompt in it", path);
  return prompts;
}

// What became of one prompt of a file.
struct Continuation {
  std::vector<int32_t> ids;  // those that the tokenizer knows
  int64_t tokens = 0;        // all that the model made
  bool end_of_document = false;
  bool ended = false;
};

int run_generate_file(const GenerateArguments& arguments) {
  FileSystem& files = object::file_system();
  Source source = find_source(files, arguments);
  const data::Tokenizer* tokenizer = source.tokenizer.get();
  const std::vector<FilePrompt> prompts = read_prompts(files, arguments.prompts);
  std::vector<std::vector<int32_t>> encoded;
  for (const FilePrompt& prompt : prompts) {
    encoded.push_back(encode_prompt(*tokenizer, prompt.text, prompt.where));
    if (static_cast<int64_t>(encoded.back().size()) >= source.recipe.model.context) {
      fail(ErrorKind::usage, "{}: {} tokens exceed the model's context of {}; shorten it",
           prompt.where, encoded.back().size(), source.recipe.model.context);
    }
  }
  const auto result_json = [&](size_t index, const Continuation& text) {
    return Json{{"index", index},
                {"prompt", prompts[index].text},
                {"text", tokenizer->decode(text.ids)},
                {"prompt_tokens", encoded[index].size()},
                {"tokens", text.tokens},
                {"end_of_document", text.end_of_document}};
  };

  const train::GenerationWeights weights = read_weights(files, source, arguments.weights);
  const double begin = monotonic_seconds();
  std::vector<Continuation> texts(prompts.size());
  size_t written = 0;
  int64_t tokens = 0;
  int64_t done = 0;
  Json results = Json::array();
  telemetry::ProgressBar progress("generate", "prompts");
  train::generate_batch(
      weights, encoded, arguments.sampling, arguments.batch,
      [&](size_t index, int32_t id) {
        throw_if_interrupted();
        Continuation& text = texts[index];
        text.end_of_document = id == tokenizer->end_of_document();
        if (text.end_of_document) return false;
        ++tokens;
        ++text.tokens;
        // A model may have more rows than its tokenizer has tokens; those say nothing.
        if (id < tokenizer->vocabulary_size()) text.ids.push_back(id);
        return true;
      },
      [&](size_t index) {
        texts[index].ended = true;
        progress.update(++done, static_cast<int64_t>(prompts.size()));
        // In the order of the prompts, as soon as all before have ended.
        for (; written < texts.size() && texts[written].ended; ++written) {
          const Json json = result_json(written, texts[written]);
          if (arguments.json) {
            results.push_back(json);
          } else {
            print_json(json);
          }
        }
      });
  progress.finish();
  if (arguments.json) {
    const double seconds = monotonic_seconds() - begin;
    print_json({{"run", arguments.run},
                {"checkpoint", source.checkpoint},
                {"step", source.step},
                {"seed", arguments.sampling.seed},
                {"prompts", prompts.size()},
                {"tokens", tokens},
                {"seconds", seconds},
                {"tokens_per_second", static_cast<double>(tokens) / seconds},
                {"results", std::move(results)}});
  }
  return exit_ok;
}

}  // namespace

void add_generate(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<GenerateArguments>();
  train::SamplingOptions& sampling = arguments->sampling;
  CLI::App* command =
      app.add_subcommand("generate", "Continue a text with a trained run or a model");
  command
      ->add_option("RUN", arguments->run,
                   "Run folder, one checkpoint folder in it, Hugging Face folder or GGUF file")
      ->required();
  command->add_option("--prompt", arguments->prompt, "Text to continue; default: a new document");
  CLI::Option* one = command->get_option("--prompt");
  CLI::Option* many =
      command
          ->add_option("--prompts", arguments->prompts,
                       "Continue every line of a file (*.jsonl: text or {\"prompt\": ...})")
          ->type_name("FILE")
          ->excludes(one);
  command->add_option("--batch", arguments->batch, "Prompts per batch")
      ->capture_default_str()
      ->check(at_least(1))
      ->needs(many);
  command->add_option("--tokens", sampling.tokens, "Tokens to generate at most")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--temperature", sampling.temperature, "Sampling temperature; 0: greedy")
      ->capture_default_str()
      ->check(between(0.0, 100.0));
  command->add_option("--top-k", sampling.top_k, "Sample from the k most likely tokens; 0: all")
      ->capture_default_str()
      ->check(at_least(0));
  command
      ->add_option("--top-p", sampling.top_p,
                   "Sample from the most likely tokens of this total probability")
      ->capture_default_str()
      ->check(between(0.0, 1.0));
  command->add_option("--seed", sampling.seed, "Same seed, same text")->capture_default_str();
  command
      ->add_option("--weights", arguments->weights,
                   "Of the weights in memory: as_stored, f32, bf16, int8 or int4")
      ->type_name("TYPE")
      ->capture_default_str();
  command->add_flag("--best", arguments->best,
                    "The checkpoint of the lowest validation loss, not the newest");
  add_json_option(*command, arguments->json);
  command->footer(
      "With --prompts the output is one JSON object per line, in the order of the file. Model and\n"
      "sampling are those of --prompt, but sums may round differently within a batch, so that\n"
      "a text may differ where two tokens are almost equally likely.\n\n"
      "Examples:\n"
      "  tutti generate runs/demo-20260131-120000 --prompt '#include <' --temperature 0.7\n"
      "  tutti generate runs/demo-20260131-120000 --prompts prompts.txt --tokens 50 > texts.jsonl");
  command->callback([arguments, &action] {
    action = [arguments] {
      return arguments->prompts.empty() ? run_generate(*arguments) : run_generate_file(*arguments);
    };
  });
}

}  // namespace tutti::cli
