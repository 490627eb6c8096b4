// Converts folders of Hugging Face's transformers to GGUF files and back: Tutti imports and exports
// folders (huggingface/folder.h).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/checkpoint/gguf/blocks.h"

namespace tutti::checkpoint {

struct GgufOptions {
  GgufType type = GgufType::bf16;  // of matrices; norms and biases are f32, as llama.cpp requires
  std::string name = {};           // general.name
  std::function<void(int64_t done_bytes, int64_t total_bytes)> progress = {};
};

struct GgufWritten {
  int64_t tensors = 0;
  int64_t file_bytes = 0;
  int64_t plain_tensors = 0;  // matrices whose rows are not whole blocks, written as f16
  std::vector<std::string> notes;
};

// Writes `path` from the model in `folder`. Memory: the largest tensor in f32, twice. Throws like
// HfFolder, and unsupported for a model that llama.cpp would compute differently (config.h).
GgufWritten write_gguf_of(FileSystem& files, const std::string& folder, const std::string& path,
                          const GgufOptions& options);

// Writes config.json, model.safetensors and the tokenizer's files of the model in the GGUF file
// `path` into the existing `folder`. Blocks become f32; other types are kept. Returns notes. Throws
// corrupt or unsupported naming the file and its key or tensor.
std::vector<std::string> write_folder_of(
    FileSystem& files, const std::string& path, const std::string& folder,
    const std::function<void(int64_t done_bytes, int64_t total_bytes)>& progress = {});

// Whether the file starts like a GGUF file.
bool is_gguf(FileSystem& files, const std::string& path);

}  // namespace tutti::checkpoint
