// The `model` of a tokenizer.json, and which ids are taken.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "tutti/data/tokenizers/hf_reader.h"
#include "tutti/data/tokenizers/hf_tokenizer_file.h"

namespace tutti::data {

class HfModelReader : private HfReader {
 public:
  // `byte_level`: tokens are written in GPT-2's alphabet.
  HfModelReader(const std::string& origin, bool byte_level)
      : HfReader(origin), byte_level_(byte_level) {}

  HfModelFile read(const HfObject& model);
  // A token of the model or beside it. Throws corrupt for an id that another token has.
  int32_t take_id(const HfObject& value, const std::string& token);

 private:
  std::string model_type(const HfObject& model) const;
  const HfObject& vocabulary_of(const HfObject& model) const;
  std::string symbol(const std::string& token) const;
  void read_tokens(const HfObject& model, const std::string& unknown, HfModelFile& out);
  void read_bpe(const HfObject& model, HfModelFile& out);
  void read_merges(const HfObject& model, HfModelFile& out) const;
  void read_unigram(const HfObject& model, HfModelFile& out);

  bool byte_level_;
  std::unordered_map<int32_t, std::string> names_;
};

}  // namespace tutti::data
