#include "tutti/cli/plan/serving_rates.h"

#include <algorithm>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/checkpoint/huggingface/folder.h"
#include "tutti/checkpoint/huggingface/import.h"
#include "tutti/endpoint/engine.h"
#include "tutti/endpoint/model.h"
#include "tutti/launch/home.h"
#include "tutti/train/session/run_folder.h"

namespace tutti::cli {
namespace {

// One step of `streams` answers, as the engine cuts it into passes.
plan::MeasuredPasses decoding(const spec::InferenceProgram& program, int64_t streams, int64_t past,
                              double seconds) {
  plan::MeasuredPasses out;
  out.seconds = seconds;
  for (int64_t left = streams; left > 0; left -= plan::kFewServedRows) {
    const std::vector<spec::TextRows> texts(
        static_cast<size_t>(std::min(left, plan::kFewServedRows)), {1, past, true});
    out.passes.push_back(program.pass(texts));
  }
  return out;
}

plan::MeasuredPasses prompt(const spec::InferenceProgram& program, int64_t tokens, int64_t piece,
                            double seconds) {
  plan::MeasuredPasses out;
  out.seconds = seconds;
  for (int64_t past = 0; past < tokens; past += piece) {
    const spec::TextRows rows{std::min(piece, tokens - past), past, past + piece >= tokens};
    out.passes.push_back(program.pass({&rows, 1}));
  }
  return out;
}

// Of the measured file; what no measurement can be is refused.
double read_amount(const Json& json, const char* key, const std::string& path, double least,
                   double most) {
  const auto value = json_get<double>(json, key, path);
  if (value >= least && value <= most) return value;
  fail(ErrorKind::corrupt, "{}: {} {} is not between {:g} and {:g}", path, key, value, least, most);
}
double read_seconds(const Json& json, const char* key, const std::string& path) {
  return read_amount(json, key, path, 1e-9, 1e6);
}
int64_t read_count(const Json& json, const char* key, const std::string& path, int64_t least) {
  return static_cast<int64_t>(read_amount(json, key, path, static_cast<double>(least), 1e7));
}

}  // namespace

spec::ModelConfig find_served_model(FileSystem& files, const std::string& name) {
  if (!files.is_directory(name)) return spec::load_model_preset(name, launch::models_folder(files));
  if (files.exists(train::recipe_path(name))) return train::load_recipe(files, name).model;
  const std::string path = join_path(name, checkpoint::kHfConfig);
  if (!files.exists(path)) {
    fail(ErrorKind::not_found, "'{}' is neither a run folder nor one with {}", name,
         checkpoint::kHfConfig);
  }
  return checkpoint::read_hf_config(parse_json(read_file(files, path), path), path).model;
}

spec::InferenceForm inference_form(const std::string& weights) {
  switch (endpoint::parse_weight_type(weights)) {
    case endpoint::WeightType::f32: return {DType::f32, {}};
    case endpoint::WeightType::int8: return {DType::bf16, PackKind::int8};
    case endpoint::WeightType::int4: return {DType::bf16, PackKind::int4};
    case endpoint::WeightType::as_stored:
    case endpoint::WeightType::bf16: break;
  }
  return {DType::bf16, {}};
}

plan::ServingRates measured_rates(FileSystem& files, const std::string& path,
                                  const std::string& weights) {
  const Json json = parse_json(read_file(files, path), path);
  const auto measured = json_get<std::string>(json, "weights", path);
  const spec::InferenceForm form = inference_form(measured);
  const spec::InferenceForm asked = inference_form(weights);
  if (form.compute != asked.compute || form.pack != asked.pack) {
    fail(ErrorKind::usage,
         "--measured: '{}' was measured with weights {}, and --weights is {}; measure those with "
         "'tutti bench inference --weights {} --json'",
         path, measured, weights, weights);
  }
  const spec::InferenceProgram program(
      find_served_model(files, json_get<std::string>(json, "model", path)), form);
  const Json answers = json_get<Json>(json, "answers", path);
  const Json asked_prompt = json_get<Json>(json, "prompt", path);
  const auto past = read_count(json, "mean_answer_position", path, 0);
  std::vector<plan::MeasuredPasses> few;
  for (const Json& one : answers) {
    few.push_back(decoding(program, read_count(one, "streams", path, 1), past,
                           read_seconds(one, "step_seconds", path)));
  }
  const std::vector<plan::MeasuredPasses> many = {prompt(
      program, read_count(asked_prompt, "tokens", path, 1),
      endpoint::EngineOptions().prefill_tokens, read_seconds(asked_prompt, "seconds", path))};
  return plan::fitted_rates(few, many);
}

}  // namespace tutti::cli
