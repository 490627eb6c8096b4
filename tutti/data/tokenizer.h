// From bytes to token ids and back. Tokenizers:
//   byte   ids 0..255 are the bytes, 256 ends a document (byte_tokenizer.h)
//   char   one id per distinct character of the corpus, as nanoGPT's shakespeare_char
//          (char_tokenizer.h)
// A tokenizer is stored beside its corpus as PREFIX.tokenizer.json:
//   {"format": "tutti-tokenizer", "version": 1, "name": "byte", "vocabulary_size": 257,
//    "end_of_document": 256}            end_of_document is null when there is none
// plus what the kind needs. Objects are immutable and may be used from many threads.
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

class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  virtual std::string name() const = 0;
  virtual int32_t vocabulary_size() const = 0;  // ids are 0 .. vocabulary_size() - 1
  virtual int32_t end_of_document() const = 0;  // kNoToken when there is none

  // Appends the ids of `text` to `out`, without an end of document. Throws usage for text that
  // the tokenizer cannot represent.
  virtual void encode(std::string_view text, std::vector<int32_t>& out) const = 0;
  std::vector<int32_t> encode(std::string_view text) const;

  // The bytes of `ids`; an end of document is nothing. Throws corrupt for an id outside the
  // vocabulary. decode(encode(text)) == text.
  virtual std::string decode(std::span<const int32_t> ids) const = 0;

  // The largest p <= position at which `text` may be cut: encode(text[0, p)) followed by
  // encode(text[p, ...)) equals encode(text). Monotonic in position.
  virtual size_t cut(std::string_view text, size_t position) const = 0;

  // Members that the kind adds to the stored form.
  virtual void describe(Json& object) const = 0;
};

// The names of make_tokenizer and of stored forms: "byte", "char".
const std::vector<std::string>& tokenizer_names();

Json tokenizer_json(const Tokenizer& tokenizer);
// Throws corrupt or unsupported naming `origin`, the path the value was read from.
std::unique_ptr<Tokenizer> tokenizer_from_json(const Json& value, const std::string& origin);

// Of PREFIX.tokenizer.json, or of any such file.
std::unique_ptr<Tokenizer> load_tokenizer(FileSystem& files, const std::string& prefix);
std::unique_ptr<Tokenizer> load_tokenizer_file(FileSystem& files, const std::string& path);

}  // namespace tutti::data
