// The `normalizer`, `pre_tokenizer` and `decoder` of a tokenizer.json. What is not understood
// throws unsupported naming file, key and value.
#pragma once

#include <string>
#include <vector>

#include "tutti/data/hf_reader.h"
#include "tutti/data/hf_tokenizer_file.h"

namespace tutti::data {

class HfStepsReader : private HfReader {
 public:
  using HfReader::HfReader;
  // Each appends its steps to `out`.
  void read_normalizer(const HfObject& node, std::vector<NormalizeStep>& out) const;
  void read_split(const HfObject& node, std::vector<SplitStep>& out) const;
  void read_decoder(const HfObject& node, HfDecoding& out) const;

 private:
  std::string literal(const HfObject& node, const char* what) const;
  void read_pattern(const HfObject& node, std::vector<SplitStep>& out) const;
  void read_metaspace(const HfObject& node, std::vector<SplitStep>& out) const;
  void check_mark(const HfObject& node) const;
};

}  // namespace tutti::data
