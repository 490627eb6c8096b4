#include <cmath>
#include <memory>
#include <string>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/data/tokenizer.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/data/corpus/format.h"
#include "tutti/launch/prepared_data.h"
#include "tutti/model/inference_weights.h"
#include "tutti/object/file_system.h"
#include "tutti/spec/model/params.h"
#include "tutti/spec/recipe/names.h"
#include "tutti/telemetry/sinks/progress_bar.h"
#include "tutti/train/tasks/evaluate.h"
#include "tutti/train/tasks/tasks.h"

namespace tutti::cli {
namespace {

struct EvalArguments {
  std::string run;
  std::vector<std::string> data;
  std::vector<std::string> tasks;
  int64_t batch = 8;
  std::string packing;   // empty: the run's
  int64_t sequence = 0;  // 0: the run's
  std::string weights = "as_stored";
  bool best = false;
  bool json = false;
};

// Ids of another tokenizer would give a loss that means nothing. Which tokens begin and end
// documents may differ, as in a corpus to train on.
void check_same_tokenizer(FileSystem& files, const std::string& prefix,
                          const data::Tokenizer& tokenizer) {
  const std::string path = data::corpus_paths(prefix).tokenizer;
  if (!files.exists(path)) return;
  if (data::tokenizer_hash(*data::load_tokenizer_file(files, path)) ==
      data::tokenizer_hash(tokenizer)) {
    return;
  }
  fail(ErrorKind::usage,
       "--data: '{}' was made with another tokenizer than the run ({}); prepare it again with "
       "--tokenizer RUN/tokenizer.json",
       prefix, path);
}

Json evaluate_set(FileSystem& files, const train::LoadedRun& run, const spec::CorpusBlend& blend,
                  const data::Tokenizer* tokenizer) {
  for (const spec::CorpusShare& share : blend.corpora) {
    if (tokenizer != nullptr) check_same_tokenizer(files, share.prefix, *tokenizer);
  }
  launch::record_checksums(files, blend);
  const std::string name = spec::blend_text(blend);
  telemetry::ProgressBar progress("evaluate " + std::string(base_name(name)), "micro-batches");
  const train::RunEvaluation result = train::evaluate_run(
      files, run, blend, [&](int64_t done, int64_t total) { progress.update(done, total); });
  progress.finish();
  // Of a blend this is not a number: its corpora count by their weights.
  const int64_t bytes = blend.corpora.size() == 1
                            ? train::predicted_text_bytes(files, blend.corpora.front().prefix,
                                                          tokenizer, run.recipe.data)
                            : 0;
  const double bits = result.loss / std::log(2.0);
  const double bits_per_byte =
      bits * static_cast<double>(result.tokens) / static_cast<double>(bytes);
  return {{"data", name},
          {"packing", spec::name_of(spec::kPackingNames, run.recipe.data.packing)},
          {"sequence", run.recipe.batch.sequence},
          {"loss", result.loss},
          {"perplexity", std::exp(result.loss)},
          {"bits_per_token", bits},
          {"bits_per_byte", bytes > 0 ? Json(bits_per_byte) : Json(nullptr)},
          {"tokens", result.tokens},
          {"text_bytes", bytes > 0 ? Json(bytes) : Json(nullptr)},
          {"seconds", result.seconds},
          {"tokens_per_second", static_cast<double>(result.tokens) / result.seconds}};
}

Json evaluate_tasks(FileSystem& files, const train::LoadedRun& run, const std::string& path,
                    const data::Tokenizer& tokenizer, int64_t batch) {
  const std::vector<train::Question> questions = train::read_questions(files, path);
  telemetry::ProgressBar progress("score " + std::string(base_name(path)), "sequences");
  const train::TaskResult result = train::score_questions(run, tokenizer, path, questions, batch,
                                                          [&](int64_t done, int64_t total) {
                                                            throw_if_interrupted();
                                                            progress.update(done, total);
                                                          });
  progress.finish();
  Json json = {{"file", path}};
  json.update(train::to_json(result));
  return json;
}

std::string sets_table(const Json& sets) {
  std::vector<std::vector<std::string>> rows = {
      {"data", "loss", "perplexity", "bits/token", "bits/byte", "tokens", "speed"}};
  for (const Json& set : sets) {
    rows.push_back(
        {set["data"].get<std::string>(), fmt::format("{:.4f}", set["loss"].get<double>()),
         fmt::format("{:.3f}", set["perplexity"].get<double>()),
         fmt::format("{:.3f}", set["bits_per_token"].get<double>()),
         set["bits_per_byte"].is_null() ? "?"
                                        : fmt::format("{:.3f}", set["bits_per_byte"].get<double>()),
         format_count(set["tokens"].get<double>()),
         format_rate(set["tokens_per_second"].get<double>(), "tokens")});
  }
  return format_table(rows);
}

std::string tasks_table(const Json& tasks) {
  std::vector<std::vector<std::string>> rows = {
      {"task", "questions", "acc", "acc_norm (per byte)", "acc_norm_tokens (per token)"}};
  for (const Json& task : tasks) {
    const auto share = [&](const char* key) {
      return fmt::format("{:.2f}%", 100 * task[key].get<double>());
    };
    const auto with_error = [&](const char* key, const char* error) {
      return share(key) + " ± " + share(error);
    };
    rows.push_back({task["file"].get<std::string>(),
                    fmt::format("{}", task["questions"].get<int64_t>()),
                    with_error("acc", "acc_stderr"), with_error("acc_norm", "acc_norm_stderr"),
                    share("acc_norm_tokens")});
  }
  return format_table(rows);
}

// How the corpora are cut into sequences, where another way than the run's is asked for.
void cut_as_asked(const EvalArguments& arguments, spec::Recipe& recipe) {
  if (arguments.packing.empty() && arguments.sequence == 0) return;
  if (!arguments.packing.empty()) {
    recipe.data.packing =
        arguments.packing == "documents" ? spec::Packing::documents : spec::Packing::none;
  }
  if (arguments.sequence > recipe.model.context) {
    fail(ErrorKind::usage, "--sequence: {} tokens are more than the model's context of {}",
         arguments.sequence, recipe.model.context);
  }
  if (arguments.sequence > 0) recipe.batch.sequence = arguments.sequence;
  spec::validate(recipe);
}

// The weights as those that are quantized for serving, where that is asked for.
void round_weights(const EvalArguments& arguments, train::LoadedRun& run) {
  for (const PackKind kind : {PackKind::int8, PackKind::int4}) {
    if (arguments.weights != pack_name(kind)) continue;
    const spec::Recipe& recipe = run.recipe;
    model::round_to_packed(recipe.model,
                           spec::param_layout(spec::param_table(recipe.model, recipe.lora)), kind,
                           run.master.data());
  }
}

int run_eval(const EvalArguments& arguments) {
  FileSystem& files = object::file_system();
  train::LoadedRun run = train::load_run(files, arguments.run, arguments.best);
  std::vector<spec::CorpusBlend> blends(arguments.data.begin(), arguments.data.end());
  if (blends.empty() && arguments.tasks.empty()) {
    if (run.recipe.data.validation.empty()) {
      fail(ErrorKind::usage, "'{}' was trained without a validation set; give one: --data PREFIX",
           arguments.run);
    }
    blends = {run.recipe.data.validation};
  }
  const auto tokenizer = try_tokenizer(files, run.recipe, run_folder_of(run));
  const spec::Recipe own = run.recipe;
  cut_as_asked(arguments, run.recipe);
  round_weights(arguments, run);
  Json sets = Json::array();
  for (const spec::CorpusBlend& blend : blends) {
    sets.push_back(evaluate_set(files, run, blend, tokenizer.get()));
  }
  run.recipe = own;
  Json tasks = Json::array();
  for (const std::string& path : arguments.tasks) {
    tasks.push_back(evaluate_tasks(
        files, run, path, *find_tokenizer(files, run.recipe, run_folder_of(run)), arguments.batch));
  }
  if (arguments.json) {
    Json out = {{"run", arguments.run}, {"checkpoint", run.checkpoint}, {"step", run.step}};
    if (arguments.weights != "as_stored") out["weights"] = arguments.weights;
    if (sets.size() == 1) out.update(sets[0]);  // one set: its figures at the top as well
    out["sets"] = std::move(sets);
    out["tasks"] = std::move(tasks);
    print_json(out);
    return exit_ok;
  }
  print_text(format_pairs({{"checkpoint", run.checkpoint}}));
  if (!sets.empty()) print_text(sets_table(sets));
  if (!tasks.empty()) print_text(tasks_table(tasks));
  return exit_ok;
}

}  // namespace

void add_eval(CLI::App& app, Action& action) {
  const auto arguments = std::make_shared<EvalArguments>();
  CLI::App* command =
      app.add_subcommand("eval", "Perplexity of a run on corpora, and accuracy on questions");
  command->add_option("RUN", arguments->run, "Run folder, or one checkpoint folder in it")
      ->required();
  command->add_option("--data", arguments->data, "Corpora; default the run's validation set")
      ->type_name("PREFIX");
  command
      ->add_option("--tasks", arguments->tasks,
                   "Multiple-choice questions, JSON lines: ctx, endings, label")
      ->type_name("FILE");
  command
      ->add_option("--packing", arguments->packing,
                   "Cut corpora into sequences as data.packing does; default the run's")
      ->check(CLI::IsMember({"none", "documents"}));
  command
      ->add_option("--sequence", arguments->sequence,
                   "Tokens of a sequence; default the run's batch.sequence")
      ->check(at_least(1));
  command->add_option("--batch", arguments->batch, "Sequences of questions per batch")
      ->capture_default_str()
      ->check(at_least(1));
  command
      ->add_option("--weights", arguments->weights,
                   "as_stored, or int8 or int4: what weights cost that are quantized for serving")
      ->capture_default_str()
      ->check(CLI::IsMember({"as_stored", "int8", "int4"}));
  command->add_flag("--best", arguments->best,
                    "The checkpoint of the lowest validation loss, not the newest");
  add_json_option(*command, arguments->json);
  command->footer(
      "The loss is that of training's own validation where corpus, packing and sequence are the\n"
      "same: give an imported model those of the recipe that tunes it. Bits per byte count the\n"
      "bytes of what is predicted: of prompts and answers the answers.\n\n"
      "An ending is chosen by its log-likelihood (acc), or by that per byte (acc_norm) or per\n"
      "token (acc_norm_tokens) of the ending.\n\n"
      "Examples:\n"
      "  tutti eval runs/demo-20260131-120000 --data corpora/books-validation corpora/news\n"
      "  tutti eval runs/demo-20260131-120000 --weights int4\n"
      "  tutti eval runs/demo-20260131-120000 --tasks hellaswag_val.jsonl --json");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_eval(*arguments); }; });
}

}  // namespace tutti::cli
