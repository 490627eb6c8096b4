// From bytes to token ids and back. Tokenizers:
//   byte   ids 0..255 are the bytes, 256 ends a document (byte_tokenizer.h)
//   char   one id per distinct character of the corpus, as nanoGPT's shakespeare_char
//          (char_tokenizer.h)
//   bpe, unigram, wordpiece, wordlevel   Hugging Face's tokenizer.json, by its model
//   (hf_tokenizer.h) sentencepiece   a SentencePiece model (sentencepiece_tokenizer.h)
// A tokenizer is stored beside its corpus as PREFIX.tokenizer.json:
//   {"format": "tutti-tokenizer", "version": 1, "name": "byte", "vocabulary_size": 257,
//    "end_of_document": 256}            end_of_document is null when there is none
// plus what the kind needs. Those of others have begin_of_document and special (control_tokens.h),
// and `files`: the originals, each with name, bytes and xxh3, which are beside it in
// PREFIX.tokenizer/. Objects are immutable and may be used from many threads.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"

namespace tutti::data {

inline constexpr int32_t kNoToken = -1;

struct OriginalFile {
  std::string name;  // without a folder, such as tokenizer.json
  std::string bytes;
};

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string name() const = 0;
  virtual int32_t vocabulary_size() const = 0;  // ids are 0 .. vocabulary_size() - 1
  virtual int32_t end_of_document() const = 0;  // kNoToken when there is none
  // What a document starts with, where that was asked for: one token, seldom several.
  virtual std::vector<int32_t> begin_of_document() const { return {}; }

  // Appends the ids of `text`, the start of a document, to `out`; neither begin nor end of document
  // is among them. Throws usage for text that the tokenizer cannot represent.
  virtual void encode(std::string_view text, std::vector<int32_t>& out) const = 0;
  std::vector<int32_t> encode(std::string_view text) const;
  // The same for text that continues at a cut of its document.
  virtual void encode_rest(std::string_view text, std::vector<int32_t>& out) const {
    encode(text, out);
  }

  // Ordinary tokens such as <tool_call> that a chat template spells in one of its `literals`, so
  // that users must not.
  virtual std::vector<int32_t> spelled_tokens(const std::vector<std::string>& /*literals*/) const {
    return {};
  }
  // Appends the ids of text that a chat template wrote, or of a part of it that starts a turn.
  // Control tokens are found in it, but none where a byte of it is content of a message: `origins`
  // has the chat::Origin of every byte. Nor are tokens of `guarded` found in what users wrote.
  // `rest`: not the start of the text.
  virtual void encode_chat(std::string_view text, std::string_view /*origins*/,
                           const std::vector<int32_t>& /*guarded*/, bool rest,
                           std::vector<int32_t>& out) const {
    if (rest) {
      encode_rest(text, out);
    } else {
      encode(text, out);
    }
  }

  // The bytes of `ids`; begin and end of document are nothing. Throws corrupt for an id outside the
  // vocabulary. decode(encode(text)) == text, up to what the kind says.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  // The same for ids that continue where others ended.
  virtual std::string decode_rest(std::span<const int32_t> ids) const { return decode(ids); }

  // A p <= position, the largest that the kind can prove from the text around it, at which `text`
  // may be cut: encode(text[0, p)) followed by encode_rest(text[p, ...)) equals encode(text), and
  // likewise where `text` is itself a rest. Monotonic in position; 0 when there is no such
  // position.
  virtual size_t cut(std::string_view text, size_t position) const = 0;

  // Members that the kind adds to the stored form.
  virtual void describe(Json& object) const = 0;
  // The files that the tokenizer was read from, unchanged; none for kinds of our own.
  virtual std::vector<OriginalFile> originals() const { return {}; }
};

// The ids of `text` as what a model is to continue: the start of a document. They begin with
// begin_of_document where there is one; nothing else to begin with, an empty text is
// end_of_document, after which a document starts. Empty when there is none either.
std::vector<int32_t> encode_start(const Tokenizer& tokenizer, std::string_view text);

// The names of stored forms.
const std::vector<std::string>& tokenizer_names();

Json tokenizer_json(const Tokenizer& tokenizer);  // the stored form
// XXH3 of the first original file, or of the compact stored form: equal means that every id is the
// same token.
std::string tokenizer_hash(const Tokenizer& tokenizer);
// What of a stored form decides which ids a text becomes, control tokens included: all but the
// files that only go with the first one, such as generation_config.json. Equal means the same ids.
Json tokenizer_identity(Json stored);
// Of the stored form `value`, read from `path`. Throws corrupt or unsupported naming a path.
std::unique_ptr<Tokenizer> tokenizer_from_json(FileSystem& files, const Json& value,
                                               const std::string& path);

// Of PREFIX.tokenizer.json, or of any such file.
std::unique_ptr<Tokenizer> load_tokenizer(FileSystem& files, const std::string& prefix);
std::unique_ptr<Tokenizer> load_tokenizer_file(FileSystem& files, const std::string& path);

// Writes the stored form to `path` and the originals into tokenizer_folder(path), which is removed
// when there are none.
void store_tokenizer(FileSystem& files, const Tokenizer& tokenizer, const std::string& path);
// Where the originals of the stored form at `path` (which ends in .json) are: `path` without .json.
std::string tokenizer_folder(const std::string& path);

}  // namespace tutti::data
