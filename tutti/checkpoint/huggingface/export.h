// Exports the parameters of a checkpoint as a Hugging Face model: config.json and safetensors files
// for transformers' from_pretrained.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/dtype.h"
#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/base/packed_weights.h"
#include "tutti/checkpoint/huggingface/stream.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/spec/model/config.h"

namespace tutti::checkpoint {

inline constexpr int64_t kHfShardBytes = 5'000'000'000;  // save_pretrained's "5GB"

struct HfExportOptions {
  std::optional<DType> dtype = {};  // f32, bf16 or f16; absent: as stored, without loss
  // Matrices that inference packs are written packed (pack_quantized.h), all else as `dtype`, but
  // tied embeddings as stored (file_pack_kind).
  std::optional<PackKind> pack = {};
  // Tensor bytes per file; a larger tensor has a file of its own.
  int64_t shard_bytes = kHfShardBytes;
  RopeLayout rope_layout = RopeLayout::half;
  Json original = Json::object();  // see hf_config
  // Receives the written and total bytes; an exception from it ends the export.
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress = {};
};

struct HfExported {
  std::vector<std::string> files;  // names, weights only
  int64_t tensors = 0;
  int64_t tensor_bytes = 0;  // total_size of the index
  int64_t zero_tensors = 0;  // biases that the model does not have
  DType dtype = DType::f32;  // of all tensors, or f32 if they differ; with `pack` as in the options
};

// Writes config.json, model.safetensors or model-IIIII-of-NNNNN.safetensors with their index, into
// the existing `folder`; syncs each file. Needs memory for the checkpoint's largest tensor. Throws
// unsupported for a model that transformers does not have (hf_family_of), or whose matrices cannot
// be packed, and like Reader.
HfExported export_parameters(FileSystem& files, Reader& reader, const spec::ModelConfig& model,
                             const std::string& folder, const HfExportOptions& options);

}  // namespace tutti::checkpoint
