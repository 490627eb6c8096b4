// Encodes and decodes documents for tests, from standard input to standard output. A document is a
// u32 and so many bytes, encoded a u32 and so many i32 ids.
//
// usage: tokenize encode TOKENIZER [special] [chunked]
//        tokenize decode TOKENIZER
//        tokenize speed TOKENIZER          writes the seconds that encoding took, without loading
// With `chunked` documents are cut about every 1,000 bytes, as often as the tokenizer allows, and
// each piece is encoded for itself; the number of pieces goes to standard error.
#include <cstdio>
#include <cstring>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/data/tokenizers/tokenizer_source.h"

namespace {

using tutti::data::Tokenizer;

std::string read_all() {
  return {std::istreambuf_iterator<char>(std::cin), std::istreambuf_iterator<char>()};
}

std::vector<int32_t> encode_chunked(const Tokenizer& tokenizer, std::string_view text, size_t step,
                                    size_t& pieces) {
  std::vector<int32_t> ids;
  for (size_t begin = 0, target = step; begin < text.size(); target += step) {
    const size_t end = tokenizer.cut(text, std::min(target, text.size()));
    if (end <= begin) continue;
    const std::string_view piece = text.substr(begin, end - begin);
    if (begin == 0) {
      tokenizer.encode(piece, ids);
    } else {
      tokenizer.encode_rest(piece, ids);
    }
    begin = end;
    ++pieces;
  }
  return ids;
}

// The next u32 of `input` and that many items of `width` bytes, which are taken away.
std::string_view next_document(std::string_view& input, size_t width) {
  uint32_t count = 0;
  std::memcpy(&count, input.substr(0, 4).data(), 4);
  const std::string_view items = input.substr(4, count * width);
  input.remove_prefix(4 + items.size());
  return items;
}

void write_document(const void* items, size_t count, size_t width) {
  const auto size = static_cast<uint32_t>(count);
  std::fwrite(&size, sizeof(size), 1, stdout);
  std::fwrite(items, width, count, stdout);
}

int run(const std::vector<std::string>& arguments) {
  const std::string& what = arguments.at(0);
  tutti::data::TokenizerOptions options;
  options.end = "none";  // otherwise decoding leaves it out
  bool chunked = false;
  for (const std::string& word : arguments) {
    options.special = options.special || word == "special";
    chunked = chunked || word == "chunked";
  }
  const auto tokenizer =
      tutti::data::open_tokenizer(tutti::posix_file_system(), arguments.at(1), options);
  const std::string bytes = read_all();
  size_t pieces = 0;
  double seconds = 0;
  for (std::string_view input = bytes; !input.empty();) {
    if (what == "decode") {
      const std::string_view packed = next_document(input, sizeof(int32_t));
      std::vector<int32_t> ids(packed.size() / sizeof(int32_t));
      if (!ids.empty()) std::memcpy(ids.data(), packed.data(), packed.size());
      const std::string text = tokenizer->decode(ids);
      write_document(text.data(), text.size(), 1);
      continue;
    }
    const std::string_view text = next_document(input, 1);
    const double start = tutti::monotonic_seconds();
    const std::vector<int32_t> ids =
        chunked ? encode_chunked(*tokenizer, text, std::max<size_t>(1000, text.size() / 50), pieces)
        : what == "speed" ? encode_chunked(*tokenizer, text, 65536, pieces)
                          : tokenizer->encode(text);
    seconds += tutti::monotonic_seconds() - start;
    if (what != "speed") write_document(ids.data(), ids.size(), sizeof(int32_t));
  }
  if (what == "speed") std::printf("%.6f\n", seconds);
  std::fprintf(stderr, "%zu\n", pieces);
  return 0;
}

}  // namespace

int main(int count, char** values) {
  try {
    return run({values + 1, values + count});
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "%s: %s\n", tutti::error_kind_name(error.kind()), error.what());
    return 1;
  } catch (const std::out_of_range&) {
    std::fprintf(stderr, "usage: tokenize encode|decode|speed TOKENIZER [special] [chunked]\n");
    return 2;
  }
}
