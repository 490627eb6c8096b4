// Converts config.json of transformers to the metadata of a GGUF file, and back: sizes and settings
// of the architecture. Settings that llama.cpp would compute differently are refused, naming the
// key.
#pragma once

#include <string>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/checkpoint/gguf/file.h"
#include "tutti/checkpoint/gguf/names.h"

namespace tutti::checkpoint {

struct GgufConfig {
  GgufArchitecture architecture = GgufArchitecture::llama;
  GgufMetadata metadata;
  std::vector<float> rope_factors;  // of Llama 3's scaling: [head_dim / 2]; else empty
};

// Throws unsupported naming `path` and the key.
GgufConfig gguf_config(const Json& config, const std::string& path);

// A config.json for the model in `file`. Throws unsupported or corrupt naming the file's key; every
// key of the architecture is read or refused.
Json config_of_gguf(const GgufFile& file);

GgufValue gguf_u32(int64_t value);
GgufValue gguf_f32(double value);
GgufValue gguf_text(std::string value);
GgufValue gguf_flag(bool value);

}  // namespace tutti::checkpoint
