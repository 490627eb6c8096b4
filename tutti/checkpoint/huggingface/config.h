// config.json of Hugging Face's transformers <-> spec::ModelConfig, for the model types of
// families.cpp: gpt2, llama (2, 3, 3.1 and later), mistral, mixtral and today's, dense and with
// experts.
//
// A key that changes the arithmetic in a way that Tutti cannot do throws unsupported naming the
// key, its value and what is accepted. A missing key takes the default that transformers gives it,
// and throws usage where there is none; so does a value of the wrong type. Keys that the model
// type does not have are without effect there as well: they become notes.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/json.h"
#include "tutti/spec/model/config.h"

namespace tutti::checkpoint {

enum class HfFamily {
  gpt2,
  llama,
  mistral,
  mixtral,
  qwen2,
  qwen3,
  gemma2,
  gemma3,
  phi3,
  olmo2,
  smollm3,
  granite,
  glm4,
  qwen3_moe,
  olmoe,
  gpt_oss
};

const char* hf_family_name(HfFamily family);  // the value of "model_type"

struct HfModel {
  HfFamily family = HfFamily::llama;
  spec::ModelConfig model;         // without a name
  std::vector<std::string> notes;  // what a user may want to know: ignored keys, dropped dropout
};

// `path` names the file in errors.
HfModel read_hf_config(const Json& config, std::string_view path);

// The type that computes what `model` does; throws unsupported naming the first field of the model
// that none has. Where several do, that of `original` (as below) is preferred.
HfFamily hf_family_of(const spec::ModelConfig& model, const Json& original = Json::object());

// A config.json of `model`, whose files hold `dtype`. Keys of `original` (the config.json that the
// model was once imported with, or an empty object) that say nothing about the arithmetic are kept,
// such as the ids of special tokens.
Json hf_config(const spec::ModelConfig& model, DType dtype, const Json& original);

}  // namespace tutti::checkpoint
