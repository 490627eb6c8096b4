// "quantization_config" of a config.json whose matrices are packed to 8 or 4 bits: the format
// "pack-quantized" of the library compressed-tensors, which transformers and vLLM read
// (https://github.com/vllm-project/compressed-tensors), with symmetric whole numbers and a scale
// for each 32 columns. pack_quantized.h describes its tensors.
//
// GPT-2's linear layers are of a class of their own in transformers (Conv1D), which the library
// does not know; their quant_method is "tutti", so that no other reader takes them for its own.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/base/packed_weights.h"
#include "tutti/checkpoint/huggingface/config.h"
#include "tutti/checkpoint/huggingface/names.h"
#include "tutti/spec/model/config.h"

namespace tutti::checkpoint {

// The kind in which a parameter of a model is packed in files where the others are `wanted`;
// nullopt: it is not. As in memory (spec/model/packed_params.h), but for embeddings: other readers
// have no packed ones, so they are kept as they are stored, and packed as they are read.
std::optional<PackKind> file_pack_kind(const spec::ModelConfig& model, const HfParameter& parameter,
                                       PackKind wanted);

// The quant_method of packed weights of a model type.
const char* packing_method(HfFamily family);

// Whether `config` has packed weights of any model type, in whatever form.
bool has_packing(const Json& config);

// Reads the object `quantization_config`; `path` names the file in errors. The kind of the matrices
// of blocks; the head has 8 bits. Throws unsupported naming key, value and what is
// accepted.
PackKind read_packing(const Json& quantization, HfFamily family, std::string_view path);

// The object for a model whose matrices are packed as `kind`.
Json packing_config(const spec::ModelConfig& model, HfFamily family,
                    const std::vector<HfParameter>& parameters, PackKind kind);

}  // namespace tutti::checkpoint
