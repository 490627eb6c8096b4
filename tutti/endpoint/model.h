// The model that an endpoint serves: a run folder, a folder of Hugging Face's transformers, or a
// GGUF file, read into memory in the form in which inference computes.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/chat/conversation.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/model/inference_weights.h"
#include "tutti/model/served_adapter.h"
#include "tutti/spec/model/config.h"

namespace tutti::endpoint {

// as_stored: the type that the recipe or the files compute in, f32 or bf16; of a GGUF file
// bf16. int8 and int4: matrices
// in base/packed_weights.h, all else in bf16; the head and tied embeddings take int8 at least.
// Files that are packed (checkpoint/huggingface/pack_quantized.h) stay so: other types are refused.
enum class WeightType : uint8_t { as_stored, bf16, f32, int8, int4 };
WeightType parse_weight_type(const std::string& name);  // throws usage
const std::vector<std::string>& weight_type_names();

// Adapters that requests may ask for, beside the model that they were trained on.
struct LoadedAdapter {
  std::string name;
  std::string path;  // as it was given
  std::unique_ptr<model::ServedAdapter> weights;
};

struct LoadedModel {
  std::string path;  // as it was given
  std::string name;  // of the folder or file, without a suffix
  int64_t step = 0;  // of the checkpoint; 0 for models of others
  spec::ModelConfig config;
  std::unique_ptr<model::InferenceWeights> weights;
  std::unique_ptr<data::Tokenizer> tokenizer;         // null: there is none that can be read
  std::unique_ptr<chat::ChatTemplate> chat_template;  // null: there is none
  std::vector<int32_t> stop_tokens;  // that end a text or a turn, by the tokenizer and
                                     // generation_config.json
  std::vector<std::string> notes;    // what a user should know, such as why there is no tokenizer
  int threads = 0;                   // that load_model was given
  std::string checkpoint;            // of a run: the step folder; else empty
  std::optional<checkpoint::HfFamily> family;  // of a folder of transformers
  std::vector<LoadedAdapter> adapters;         // add_adapter()

  int64_t context() const { return config.context; }
  int64_t resident_bytes() const;  // of weights and adapters
};

// Throws not_found, corrupt, usage or unsupported naming path and remedy. Memory: what the result
// holds, and the largest single tensor of a run in f32. A GGUF file is first written as a folder of
// Hugging Face's kind beside it (PATH.serving), which is removed when it has been read.
// threads 0: one per core.
std::unique_ptr<LoadedModel> load_model(FileSystem& files, const std::string& path,
                                        WeightType weights, int threads);

}  // namespace tutti::endpoint
