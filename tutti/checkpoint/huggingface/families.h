// The model types of transformers that Tutti knows, shared by the reader and the writer of
// config.json (config.h).
#pragma once

#include <vector>

#include "tutti/checkpoint/huggingface/config.h"

namespace tutti::checkpoint {

struct HfFamilyNames {
  HfFamily family;
  const char* name;                        // "model_type"
  std::vector<const char*> architectures;  // the first is what export writes
};

const std::vector<HfFamilyNames>& hf_families();
const HfFamilyNames& hf_family_names(HfFamily family);

// Keys that say nothing about the arithmetic of training: names, ids of special tokens, switches of
// the reference implementation, settings of generation. Kept when a model goes back.
const std::vector<const char*>& hf_neutral_keys();

}  // namespace tutti::checkpoint
