// Hugging Face's tokenizer.json (hf_tokenizer_file.h): byte pair encoding on bytes (GPT-2, Llama 3,
// Qwen, gpt-oss, DeepSeek) and on characters (Llama 2, Gemma), Unigram (T5, XLM-R), WordPiece
// (BERT) and WordLevel. Encodes as the `tokenizers` package does, without the post-processor: what
// starts and ends a document is added by the code that prepares one.
//
// Text is bytes. Byte-level tokenizers represent any bytes and give them back; with byte fallback
// likewise. (The package takes Unicode strings only; there, what is not UTF-8 would be U+FFFD.)
// Decoding is the inverse up to normalizers and the space that Llama 2 puts in front of a text.
//
// Control tokens (`special` in the file) are found in text only when asked for: otherwise text that
// contains "<|endoftext|>" is those characters and ends nothing.
#pragma once

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "tutti/data/prepare/idle_pool.h"
#include "tutti/data/tokenizers/control_tokens.h"
#include "tutti/data/tokenizers/hf_tokenizer_file.h"
#include "tutti/data/tokenizers/tokenizer.h"
#include "tutti/data/tokenizers/unigram.h"
#include "tutti/data/tokenizers/word_piece.h"

namespace tutti::data {

class HfTokenizer final : public Tokenizer {
 public:
  // `originals`: tokenizer.json first. Throws what read_hf_tokenizer throws, naming `origin`.
  HfTokenizer(std::vector<OriginalFile> originals, ControlTokens controls,
              const std::string& origin);
  ~HfTokenizer() override;

  using Tokenizer::encode;
  std::string name() const override;
  int32_t vocabulary_size() const override;
  int32_t end_of_document() const override { return controls_.end_of_document; }
  std::vector<int32_t> begin_of_document() const override { return controls_.begin_of_document; }
  void encode(std::string_view text, std::vector<int32_t>& out) const override;
  void encode_rest(std::string_view text, std::vector<int32_t>& out) const override;
  std::vector<int32_t> spelled_tokens(const std::vector<std::string>& literals) const override;
  // Tokens are looked for in the text as it is: `normalized` of the file is passed over.
  void encode_chat(std::string_view text, std::string_view origins,
                   const std::vector<int32_t>& guarded, bool rest,
                   std::vector<int32_t>& out) const override;
  std::string decode(std::span<const int32_t> ids) const override;
  std::string decode_rest(std::span<const int32_t> ids) const override;
  size_t cut(std::string_view text, size_t position) const override;
  void describe(Json& object) const override { describe_control_tokens(controls_, object); }
  std::vector<OriginalFile> originals() const override { return originals_; }

 private:
  // Where a text may be cut: between words of byte-level rules, of ASCII only where text is
  // normalized; before spaces, where every space starts a word; there only between signs and
  // letters.
  enum class CutRule { nowhere, words, ascii_words, spaces, plain_spaces };
  using Model = std::variant<BpeModel, UnigramModel, WordPieceModel, WordLevelModel>;
  struct Scratch;

  void encode_text(std::string_view text, bool rest, std::vector<int32_t>& out) const;
  void encode_part(std::string_view text, bool first, bool rest, Scratch& scratch,
                   std::vector<int32_t>& out) const;
  void encode_words(std::string_view text, TextPosition position, Scratch& scratch,
                    std::vector<int32_t>& out) const;
  static Model make_model(const HfModelFile& file, const std::string& origin);
  void divide_at_marks();
  CutRule choose_cut_rule() const;
  bool may_cut_at_plain_spaces() const;
  bool may_cut(std::string_view text, size_t position) const;
  std::string decode_text(std::span<const int32_t> ids, bool rest) const;

  std::vector<OriginalFile> originals_;
  ControlTokens controls_;
  HfTokenizerFile file_;
  const UnicodeClasses& classes_ = unicode_classes();
  Model model_;
  AddedTokens raw_tokens_, normalized_tokens_, chat_tokens_;
  bool marks_divide_ = false;  // no token reaches across the start of a run of space marks
  CutRule cut_rule_ = CutRule::nowhere;
  TextDecoder decoder_;
  int32_t vocabulary_size_ = 0;

  std::unique_ptr<IdlePool<Scratch>> pool_;
};

// Of the tokenizer.json at `path`.
std::unique_ptr<Tokenizer> open_hf_tokenizer(FileSystem& files, const std::string& path,
                                             const TokenizerOptions& options);

}  // namespace tutti::data
