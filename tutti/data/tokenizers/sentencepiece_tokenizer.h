// SentencePiece models (`.model`): unigram models on our own (unigram.h), BPE, word and char models
// through the library. What is not UTF-8 becomes U+FFFD, as there. Control tokens are never found
// in text.
//
// A text is encoded word by word where that is the same (no token reaches across the start of a run
// of spaces), so that equal words are encoded once. For unigram models this is exact arithmetic:
// the library adds up scores in single precision over all of a text, and may choose otherwise where
// two divisions of a word are equally likely to 7 digits. With the library, words end only between
// a printable ASCII character and a space that another one follows, which is also where a text may
// be cut.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tutti/data/tokenizers/added_tokens.h"
#include "tutti/data/tokenizers/control_tokens.h"
#include "tutti/data/tokenizers/tokenizer.h"

namespace tutti::data {

class SentencePieceTokenizer final : public Tokenizer {
 public:
  // `originals`: the model first. Throws corrupt or unsupported naming `origin`.
  SentencePieceTokenizer(std::vector<OriginalFile> originals, ControlTokens controls,
                         const std::string& origin);
  ~SentencePieceTokenizer() override;

  using Tokenizer::encode;
  std::string name() const override { return "sentencepiece"; }
  int32_t vocabulary_size() const override;
  int32_t end_of_document() const override { return controls_.end_of_document; }
  std::vector<int32_t> begin_of_document() const override { return controls_.begin_of_document; }
  void encode(std::string_view text, std::vector<int32_t>& out) const override;
  void encode_rest(std::string_view text, std::vector<int32_t>& out) const override;
  // A space goes in front of every part behind a control token that starts without one.
  void encode_chat(std::string_view text, std::string_view origins,
                   const std::vector<int32_t>& guarded, bool rest,
                   std::vector<int32_t>& out) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string decode_rest(std::span<const int32_t> ids) const override;
  size_t cut(std::string_view text, size_t position) const override;
  void describe(Json& object) const override { describe_control_tokens(controls_, object); }
  std::vector<OriginalFile> originals() const override { return originals_; }

 private:
  struct Library;
  struct Scratch;

  bool may_cut(std::string_view text, size_t position) const;
  void encode_text(std::string_view text, bool rest, std::vector<int32_t>& out) const;
  void encode_unigram(std::string_view text, bool rest, Scratch& scratch,
                      std::vector<int32_t>& out) const;

  std::vector<OriginalFile> originals_;
  ControlTokens controls_;
  std::unique_ptr<Library> library_;
  bool dummy_prefix_ = true;                        // a space is put in front of a text
  bool words_ = false;                              // text may be cut between words
  bool marks_divide_ = false;                       // unigram: words are independent
  std::vector<std::string> pieces_;                 // decoded, by id
  std::unique_ptr<const AddedTokens> chat_tokens_;  // the control tokens
};

std::unique_ptr<Tokenizer> open_sentencepiece(FileSystem& files, const std::string& path,
                                              const TokenizerOptions& options);

}  // namespace tutti::data
