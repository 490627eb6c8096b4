// config.json of Hugging Face's transformers <-> spec::ModelConfig, for the model types of
// families.cpp: gpt2, llama (2, 3, 3.1 and later), mistral, mixtral and current ones, dense and
// with experts.
//
// A key with a value that Tutti cannot compute throws unsupported, naming the key, its value and
// what is accepted. A missing key takes the default of transformers; without a default it throws
// usage, as does a value of the wrong type. Keys that the model type does not have are ignored
// there as well: they become notes.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/json.h"
#include "tutti/base/packed_weights.h"
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
  gpt_oss,
  deepseek_v2,
  deepseek_v3
};

const char* hf_family_name(HfFamily family);  // the value of "model_type"

struct HfModel {
  HfFamily family = HfFamily::llama;
  spec::ModelConfig model;               // without a name
  std::optional<PackKind> packing = {};  // of matrices that are packed (packing_config.h)
  int64_t left_out_layers = 0;     // multi-token prediction modules after the layers: not read
  std::vector<std::string> notes;  // for the user: ignored keys, dropped dropout
};

// `path` names the file in errors.
HfModel read_hf_config(const Json& config, std::string_view path);

// The model type that computes what `model` does; throws unsupported naming the first field that no
// type supports. If several types do, that of `original` (see below) is preferred.
HfFamily hf_family_of(const spec::ModelConfig& model, const Json& original = Json::object());

// A config.json of `model`, whose files store `dtype`. Keeps the keys of `original` (the
// config.json from which the model was imported, or an empty object) that do not affect the
// arithmetic, such as the ids of special tokens.
Json hf_config(const spec::ModelConfig& model, DType dtype, const Json& original);

}  // namespace tutti::checkpoint
