// The `normalizer`, `pre_tokenizer`, `post_processor` and `decoder` of a tokenizer.json. What is
// not understood throws unsupported naming file, key and value; what is not sound throws corrupt.
#pragma once

#include <string>
#include <vector>

#include "tutti/data/tokenizers/hf_reader.h"
#include "tutti/data/tokenizers/text_decoder.h"
#include "tutti/data/tokenizers/text_normalizer.h"
#include "tutti/data/tokenizers/text_split.h"

namespace tutti::data {

class HfStepsReader : private HfReader {
 public:
  using HfReader::HfReader;
  // Each appends its steps to `out`.
  void read_normalizer(const HfObject& node, std::vector<NormalizeStep>& out) const;
  void read_split(const HfObject& node, std::vector<SplitStep>& out) const;
  void read_decoder(const HfObject& node, std::vector<DecodeStep>& out) const;
  // The tokens that are put before a text.
  void read_post_processor(const HfObject& node, std::vector<std::string>& begin) const;

 private:
  struct Searched {  // one of the two
    std::string text;
    std::string expression;
  };
  Searched read_searched(const HfObject& node) const;
  Delimiters read_behavior(const HfObject& node, const char* otherwise) const;
  void read_split_pattern(const HfObject& node, std::vector<SplitStep>& out) const;
  void read_metaspace(const HfObject& node, std::vector<SplitStep>& out) const;
  void read_bert(const HfObject& node, std::vector<NormalizeStep>& out) const;
  void read_template(const HfObject& node, std::vector<std::string>& begin) const;
  bool read_mark(const HfObject& node) const;
  std::string read_char(const HfObject& node, const char* key) const;
};

}  // namespace tutti::data
