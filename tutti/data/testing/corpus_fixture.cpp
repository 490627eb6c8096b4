// The C++ side of tests/readers/read_corpus.py.
//
//   corpus_fixture write FOLDER   writes corpora whose content follows from the rule below
//   corpus_fixture check PREFIX   reads a corpus made by the rule and exits with 1 if it differs
//   corpus_fixture prepare FILE PREFIX   a byte-level corpus of FILE, a fifth held out
//
// The rule: document d of n has length (7 d + 3) mod 11, and its token i is
// (1000003 d + 7919 i) mod limit, where limit is 65536 for u16 and 2147483647 for i32.
#include <cstdio>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/corpus/writer.h"
#include "tutti/data/prepare/prepare.h"

namespace tutti::data {
namespace {

std::vector<int32_t> document_of(int64_t d, int64_t limit) {
  std::vector<int32_t> tokens(static_cast<size_t>((7 * d + 3) % 11));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>((1000003 * d + 7919 * static_cast<int64_t>(i)) % limit);
  }
  return tokens;
}

int64_t limit_of(DType dtype) { return dtype == DType::u16 ? 65536 : 2147483647; }

void write(const std::string& prefix, DType dtype, int64_t documents) {
  CorpusWriter writer(posix_file_system(), prefix, dtype);
  for (int64_t d = 0; d < documents; ++d) {
    writer.append(document_of(d, limit_of(dtype)));
    writer.end_document();
  }
  writer.finish();
  writer.commit();
}

bool check(const std::string& prefix) {
  const Corpus corpus(posix_file_system(), prefix);
  for (int64_t d = 0; d < corpus.documents(); ++d) {
    const auto [first, count] = corpus.document_range(d);
    std::vector<int32_t> tokens(static_cast<size_t>(count));
    corpus.read(first, count, tokens.data());
    if (tokens != document_of(d, limit_of(corpus.dtype()))) {
      std::fprintf(stderr, "document %lld of %s differs\n", static_cast<long long>(d),
                   prefix.c_str());
      return false;
    }
  }
  return true;
}

int run(const std::vector<std::string>& arguments) {
  if (arguments.size() == 2 && arguments[0] == "write") {
    write(arguments[1] + "/narrow", DType::u16, 1000);
    write(arguments[1] + "/wide", DType::i32, 333);
    write(arguments[1] + "/single", DType::u16, 1);
    return 0;
  }
  if (arguments.size() == 2 && arguments[0] == "check") return check(arguments[1]) ? 0 : 1;
  if (arguments.size() == 3 && arguments[0] == "prepare") {
    PrepareOptions options;
    options.sources = {arguments[1]};
    options.prefix = arguments[2];
    options.holdout_share = 0.2;
    prepare(posix_file_system(), options);
    return 0;
  }
  std::fprintf(stderr, "usage: corpus_fixture write FOLDER | check PREFIX | prepare FILE PREFIX\n");
  return 2;
}

}  // namespace
}  // namespace tutti::data

int main(int count, char** arguments) {
  try {
    return tutti::data::run({arguments + 1, arguments + count});
  } catch (const tutti::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
