// `tutti bench inference`: prompts and answers of a model against this machine's own peaks.
#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/endpoint/inference_bench.h"
#include "tutti/engine/gemm_peak.h"
#include "tutti/launch/home.h"
#include "tutti/node/copy_bandwidth.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::cli {
namespace {

struct InferenceArguments {
  std::string model = "gpt2-124m";
  std::string weights = "as_stored";
  std::string streams = "1,16";
  endpoint::InferenceBenchOptions options;
  bool json = false;
};

// A model in memory: one that is on disk, or a preset with random weights.
std::unique_ptr<endpoint::LoadedModel> bench_model(const InferenceArguments& arguments) {
  FileSystem& files = posix_file_system();
  const endpoint::WeightType weights = endpoint::parse_weight_type(arguments.weights);
  if (files.exists(arguments.model)) {
    return endpoint::load_model(files, arguments.model, weights, arguments.options.threads);
  }
  const spec::ModelConfig config =
      spec::load_model_preset(arguments.model, launch::models_folder(files));
  return endpoint::random_model(config, weights, arguments.options.threads);
}

std::vector<int64_t> parse_streams(const std::string& text) {
  std::vector<int64_t> out;
  for (const std::string_view one : split(text, ',')) {
    out.push_back(parse_count(one, "--streams"));
    if (out.back() < 1) fail(ErrorKind::usage, "--streams {}: {} is not at least 1", text, one);
  }
  return out;
}

int run_inference_bench(InferenceArguments arguments) {
  arguments.options.streams = parse_streams(arguments.streams);
  const auto model = bench_model(arguments);
  const int64_t resident = resident_bytes();
  const double peak_bandwidth = node::measure_copy_bandwidth();
  const auto stream = engine::make_cpu_stream(arguments.options.threads);
  const double peak_flops = engine::measure_gemm_peak(*stream, model->weights->compute());
  const endpoint::InferenceSpeed speed = endpoint::bench_inference(*model, arguments.options);
  const auto per_second = [](double amount, double seconds) {
    return amount / std::max(seconds, 1e-9);
  };
  const double prompt_share = per_second(speed.prompt.flops, speed.prompt.seconds) / peak_flops;
  Json answers = Json::array();
  std::vector<std::vector<std::string>> rows = {{"streams", "tokens/s", "step", "of bandwidth"}};
  for (const endpoint::AnswerSpeed& one : speed.answers) {
    const double step = one.seconds / static_cast<double>(std::max<int64_t>(1, one.steps));
    const double share = per_second(one.bytes_per_step, step) / peak_bandwidth;
    answers.push_back({{"streams", one.streams},
                       {"tokens_per_second", one.tokens_per_second},
                       {"step_seconds", step},
                       {"bytes_per_step", one.bytes_per_step},
                       {"share_of_copy_bandwidth", share}});
    rows.push_back({std::to_string(one.streams), fmt::format("{:.1f}", one.tokens_per_second),
                    format_seconds(step), fmt::format("{:.0f}%", 100 * share)});
  }
  if (arguments.json) {
    print_json({{"model", arguments.model},
                {"weights", arguments.weights},
                {"weight_bytes", model->resident_bytes()},
                {"resident_bytes", resident},
                {"peak_resident_bytes", peak_resident_bytes()},
                {"copy_bandwidth_bytes_per_second", peak_bandwidth},
                {"gemm_peak_flops", peak_flops},
                {"prompt",
                 {{"tokens", speed.prompt.tokens},
                  {"seconds", speed.prompt.seconds},
                  {"share_of_gemm_peak", prompt_share}}},
                {"mean_answer_position",
                 arguments.options.start_tokens + arguments.options.answer_tokens / 2},
                {"answers", std::move(answers)}});
    return exit_ok;
  }
  print_text(format_pairs(
      {{"weights",
        fmt::format("{} in {}", format_bytes(static_cast<double>(model->resident_bytes())),
                    arguments.weights)},
       {"prompt", fmt::format("{} tokens in {}, {} ({:.0f}% of the GEMM peak of {:.0f} GFLOP/s)",
                              speed.prompt.tokens, format_seconds(speed.prompt.seconds),
                              format_rate(per_second(static_cast<double>(speed.prompt.tokens),
                                                     speed.prompt.seconds),
                                          "tokens"),
                              100 * prompt_share, peak_flops * 1e-9)},
       {"bandwidth",
        fmt::format("{}/s copied, measured just now", format_bytes(peak_bandwidth))}}));
  print_text(format_table(rows));
  return exit_ok;
}

}  // namespace

void add_bench_inference(CLI::App& bench, Action& action) {
  const auto arguments = std::make_shared<InferenceArguments>();
  endpoint::InferenceBenchOptions& options = arguments->options;
  CLI::App* command =
      bench.add_subcommand("inference", "Prompts and answers of a model, one stream and several");
  command
      ->add_option("--model", arguments->model,
                   "Preset of recipes/models with random weights, run folder, Hugging Face folder "
                   "or GGUF file")
      ->capture_default_str();
  command
      ->add_option("--weights", arguments->weights,
                   "Of the weights in memory: as_stored, f32, bf16, int8 or int4")
      ->type_name("TYPE")
      ->capture_default_str();
  command->add_option("--streams", arguments->streams, "Answers side by side, in each measurement")
      ->capture_default_str();
  command->add_option("--prompt-tokens", options.prompt_tokens, "Tokens of the prompt")
      ->capture_default_str()
      ->check(at_least(1));
  command->add_option("--answer-tokens", options.answer_tokens, "Tokens of each answer")
      ->capture_default_str()
      ->check(at_least(2));
  command->add_option("--threads", options.threads, "Threads; 0: all cores")
      ->capture_default_str()
      ->check(at_least(0));
  add_json_option(*command, arguments->json);
  command->footer(
      "Every answer reads the weights once per step, so that its speed is bound by the "
      "memory's.\n\n"
      "Examples:\n"
      "  tutti bench inference --model gpt2-124m --weights int8\n"
      "  tutti bench inference --model Llama-3.2-1B --weights int4 --prompt-tokens 1024 --streams "
      "1,4,16");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_inference_bench(*arguments); }; });
}

}  // namespace tutti::cli
