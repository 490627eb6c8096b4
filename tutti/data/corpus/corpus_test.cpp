#include "tutti/data/corpus/corpus.h"

#include <algorithm>
#include <cstring>

#include "tutti/base/rng.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/data/corpus/format.h"
#include "tutti/data/corpus/require_corpus.h"
#include "tutti/data/corpus/writer.h"
#include "tutti/data/testing/test_support.h"

namespace tutti::data {
namespace {

// The worked example of format.h, byte by byte.
constexpr unsigned char kGoldenIndex[] = {
    'M', 'M', 'I', 'D', 'I', 'D', 'X', 0, 0,                       // magic
    1,   0,   0,   0,   0,   0,   0,   0,                          // version
    8,                                                             // u16
    2,   0,   0,   0,   0,   0,   0,   0,                          // sequences
    3,   0,   0,   0,   0,   0,   0,   0,                          // document entries
    3,   0,   0,   0,   1,   0,   0,   0,                          // lengths
    0,   0,   0,   0,   0,   0,   0,   0,                          // offsets
    6,   0,   0,   0,   0,   0,   0,   0, 0, 0, 0, 0, 0, 0, 0, 0,  // documents
    1,   0,   0,   0,   0,   0,   0,   0, 2, 0, 0, 0, 0, 0, 0, 0};
constexpr unsigned char kGoldenBin[] = {5, 0, 6, 0, 7, 0, 8, 0};

std::string golden_index() {
  return std::string(reinterpret_cast<const char*>(kGoldenIndex), sizeof kGoldenIndex);
}
std::string golden_bin() {
  return std::string(reinterpret_cast<const char*>(kGoldenBin), sizeof kGoldenBin);
}

template <typename T>
void poke(std::string& bytes, size_t offset, T value) {
  std::memcpy(bytes.data() + offset, &value, sizeof value);
}

// What opening the pair says.
std::string opening(ErrorKind kind, const std::string& idx, const std::string& bin) {
  MemoryFileSystem files;
  write_text(files, "c.idx", idx);
  write_text(files, "c.bin", bin);
  return error_of(kind, [&] { Corpus(files, "c"); });
}

std::vector<int32_t> read_all(const Corpus& corpus) {
  std::vector<int32_t> out(static_cast<size_t>(corpus.tokens()));
  corpus.read(0, corpus.tokens(), out.data());
  return out;
}

TEST(CorpusWriter, WritesTheFormatByteForByte) {
  MemoryFileSystem files;
  write_corpus(files, "c", {{5, 6, 7}, {8}});
  EXPECT_EQ(read_file(files, "c.idx"), golden_index());
  EXPECT_EQ(read_file(files, "c.bin"), golden_bin());
}

TEST(CorpusWriter, WideVocabulariesAreI32) {
  EXPECT_EQ(token_dtype(257), DType::u16);
  EXPECT_EQ(token_dtype(65499), DType::u16);
  EXPECT_EQ(token_dtype(65500), DType::i32);
  MemoryFileSystem files;
  write_corpus(files, "c", {{70000, 1}}, DType::i32);
  EXPECT_EQ(read_file(files, "c.bin"), std::string("\x70\x11\x01\x00\x01\x00\x00\x00", 8));
  EXPECT_EQ(read_file(files, "c.idx")[17], 4);
}

TEST(CorpusWriter, LongDocumentsBecomeSeveralSequences) {
  MemoryFileSystem files;
  CorpusWriter writer(files, "c", DType::u16, 4);
  const std::vector<int32_t> ten = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};
  writer.append(ten);
  writer.append({ten.data(), 2});
  writer.end_document();
  writer.append({ten.data(), 4});
  const CorpusSummary summary = writer.finish();
  writer.commit();
  EXPECT_EQ(summary.documents, 2);
  EXPECT_EQ(summary.sequences, 4);
  const Corpus corpus(files, "c");
  EXPECT_EQ(corpus.sequence_tokens(0), 4);
  EXPECT_EQ(corpus.sequence_tokens(2), 4);
  EXPECT_EQ(corpus.document_range(0).count, 12);
  EXPECT_EQ(corpus.document_range(1).first, 12);
  EXPECT_EQ(read_all(corpus),
            (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 0, 1, 0, 1, 2, 3}));
}

TEST(CorpusWriter, LeavesNothingWithoutCommit) {
  MemoryFileSystem files;
  {
    CorpusWriter writer(files, "c", DType::u16);
    writer.append(std::vector<int32_t>{1, 2});
    writer.finish();
  }
  EXPECT_TRUE(files.list("/").empty());
}

TEST(CorpusWriter, IsCompleteOrAbsentAfterACrash) {
  MemoryFileSystem files;
  files.start_record();
  write_corpus(files, "c", {{5, 6, 7}, {8}});
  for (int64_t k = 0; k <= files.operation_count(); ++k) {
    for (uint64_t seed = 0; seed < 8; ++seed) {
      const auto after = files.crash_after(k, seed);
      if (!after->exists("c.idx")) continue;
      EXPECT_EQ(read_all(Corpus(*after, "c")), (std::vector<int32_t>{5, 6, 7, 8}));
    }
  }
  EXPECT_TRUE(files.crash_after(files.operation_count(), 0)->exists("c.idx"));
}

TEST(Corpus, RoundTripsOddSizes) {
  for (const DType dtype : {DType::u16, DType::i32}) {
    MemoryFileSystem files;
    std::vector<std::vector<int32_t>> documents;
    std::vector<int32_t> all;
    for (uint64_t d = 0; d < 40; ++d) {
      auto& document = documents.emplace_back();
      const uint64_t tokens = d == 7 ? 600000 : random_u64(1, d) % 50;  // also none
      for (uint64_t i = 0; i < tokens; ++i) {
        document.push_back(static_cast<int32_t>(random_u64(2 + d, i) % 65536));
      }
      all.insert(all.end(), document.begin(), document.end());
    }
    files.create_directories("folder");
    write_corpus(files, "folder/c", documents, dtype);
    const Corpus corpus(files, "folder/c");
    EXPECT_EQ(corpus.dtype(), dtype);
    ASSERT_EQ(corpus.documents(), 40);
    EXPECT_EQ(corpus.sequences(), 40);
    EXPECT_EQ(read_all(corpus), all);
    for (int64_t d = 0; d < corpus.documents(); ++d) {
      const auto [first, count] = corpus.document_range(d);
      std::vector<int32_t> document(static_cast<size_t>(count));
      corpus.read(first, count, document.data());
      EXPECT_EQ(document, documents[static_cast<size_t>(d)]);
    }
    for (uint64_t i = 0; i < 50; ++i) {  // reads across documents
      const auto first = static_cast<int64_t>(random_u64(100, i) % all.size());
      const auto count = std::min<int64_t>(77, corpus.tokens() - first);
      std::vector<int32_t> part(static_cast<size_t>(count));
      corpus.read(first, count, part.data());
      EXPECT_TRUE(std::equal(part.begin(), part.end(), all.begin() + first));
    }
  }
}

TEST(Corpus, ReadsEveryIntegerType) {
  const struct {
    uint8_t code;
    std::string bytes;
    std::vector<int32_t> tokens;
  } cases[] = {{1, {"\x05\xff", 2}, {5, 255}},
               {2, {"\x05\x7f", 2}, {5, 127}},
               {3, {"\x05\x00\xff\x7f", 4}, {5, 32767}},
               {8, {"\x05\x00\xff\xff", 4}, {5, 65535}},
               {4, {"\x05\x00\x00\x00\xff\xff\xff\x7f", 8}, {5, 2147483647}},
               {5, {"\x05\0\0\0\0\0\0\0\x06\0\0\0\0\0\0\0", 16}, {5, 6}}};
  for (const auto& c : cases) {
    MemoryFileSystem files;
    std::string idx = golden_index();
    poke<uint8_t>(idx, 17, c.code);
    poke<int32_t>(idx, 34, 1);
    poke<int64_t>(idx, 50, static_cast<int64_t>(c.bytes.size() / 2));
    write_text(files, "c.idx", idx);
    write_text(files, "c.bin", c.bytes);
    EXPECT_EQ(read_all(Corpus(files, "c")), c.tokens) << int{c.code};
  }
}

TEST(Corpus, AcceptsModes) {
  MemoryFileSystem files;
  write_text(files, "c.idx", golden_index() + std::string(2, '\1'));
  write_text(files, "c.bin", golden_bin());
  EXPECT_TRUE(Corpus(files, "c").has_modes());
}

TEST(Corpus, NamesWhatIsMissing) {
  MemoryFileSystem files;
  const std::string none = error_of(ErrorKind::not_found, [&] { Corpus(files, "a/c"); });
  EXPECT_TRUE(contains(none, "a/c.bin") && contains(none, "data prepare")) << none;
  write_text(files, "c.bin", golden_bin());
  const std::string idx = error_of(ErrorKind::not_found, [&] { Corpus(files, "c"); });
  EXPECT_TRUE(contains(idx, "'c.idx' does not")) << idx;
  write_text(files, "c.idx", golden_index());
  const std::string suffix = error_of(ErrorKind::not_found, [&] { Corpus(files, "c.bin"); });
  EXPECT_TRUE(contains(suffix, "write 'c' instead")) << suffix;
  files.remove_file("c.bin");
  const std::string bin = error_of(ErrorKind::not_found, [&] { Corpus(files, "c"); });
  EXPECT_TRUE(contains(bin, "'c.bin' does not")) << bin;
}

TEST(Corpus, EveryDamageIsAClearError) {
  const std::string idx = golden_index();
  const std::string bin = golden_bin();
  const auto with = [&](size_t offset, auto value) {
    std::string changed = idx;
    poke(changed, offset, value);
    return changed;
  };
  const auto corrupt = [&](const std::string& index, const std::string& body, const char* says) {
    const std::string message = opening(ErrorKind::corrupt, index, body);
    EXPECT_TRUE(contains(message, says)) << message;
  };
  corrupt("Not an index at all, but some other file", bin, "not the index of a corpus");
  corrupt(with(3, 'x'), bin, "not the index of a corpus");
  corrupt(with(17, uint8_t{9}), bin, "element type 9");
  corrupt(with(17, uint8_t{0}), bin, "element type 0");
  corrupt(with(18, uint64_t{1} << 60), bin, "truncated");
  corrupt(with(26, ~uint64_t{0}), bin, "truncated");
  corrupt(idx + "more", bin, "4 bytes after its last array");
  corrupt(with(34, int32_t{-3}), bin, "length -3");
  corrupt(with(34, int32_t{2}), bin, "sequence 1 starts at byte 6");
  corrupt(with(38, int32_t{2}), bin, "'c.bin' is truncated");
  corrupt(with(42, int64_t{2}), bin, "sequence 0 starts at byte 2");
  corrupt(with(50, int64_t{-6}), bin, "sequence 1 starts at byte -6");
  corrupt(with(58, int64_t{1}), bin, "document entry 0 is 1");
  corrupt(with(66, int64_t{3}), bin, "document entry 1 is 3");
  corrupt(with(74, int64_t{0}), bin, "document entry 2 is 0");
  corrupt(with(74, int64_t{1}), bin, "documents end at sequence 1 of 2");
  corrupt(idx, bin + "xx", "do not match");
  corrupt("", bin, "truncated");

  const std::string version = opening(ErrorKind::unsupported, with(9, uint64_t{2}), bin);
  EXPECT_TRUE(contains(version, "'c.idx' has version 2; this program reads version 1")) << version;
  for (const uint8_t floating : {6, 7}) {
    EXPECT_TRUE(contains(opening(ErrorKind::unsupported, with(17, floating), bin), "integers"));
  }
}

TEST(Corpus, EveryTruncationIsAnError) {
  const std::string idx = golden_index();
  const std::string bin = golden_bin();
  for (size_t size = 0; size < idx.size(); ++size) {
    EXPECT_TRUE(contains(opening(ErrorKind::corrupt, idx.substr(0, size), bin), "'c.idx'")) << size;
  }
  for (size_t size = 0; size < bin.size(); ++size) {
    EXPECT_TRUE(
        contains(opening(ErrorKind::corrupt, idx, bin.substr(0, size)), "'c.bin' is truncated"))
        << size;
  }
}

TEST(Corpus, EmptyIsAnError) {
  MemoryFileSystem files;
  write_corpus(files, "c", {});
  EXPECT_TRUE(contains(error_of(ErrorKind::corrupt, [&] { Corpus(files, "c"); }), "no tokens"));
  write_corpus(files, "d", {{}});
  EXPECT_TRUE(contains(error_of(ErrorKind::corrupt, [&] { Corpus(files, "d"); }), "no tokens"));
}

// Found before anything is read, and a corpus that holds a token passes.
TEST(Corpus, SizesAloneTellThatItIsEmpty) {
  const auto asking = [](const std::string& idx, const std::string& bin) {
    MemoryFileSystem files;
    write_text(files, "c.idx", idx);
    write_text(files, "c.bin", bin);
    return error_of(ErrorKind::corrupt, [&] { require_tokens(files, "c"); });
  };
  EXPECT_NE(asking("", "").find("'c.idx' has 0 bytes"), std::string::npos);
  EXPECT_NE(asking(golden_index().substr(0, 61), golden_bin()).find("61 bytes"), std::string::npos);
  EXPECT_NE(asking(golden_index(), "").find("'c.bin' holds no tokens"), std::string::npos);
  MemoryFileSystem files;
  write_corpus(files, "c", {{5}});
  EXPECT_NO_THROW(require_tokens(files, "c"));
}

TEST(CorpusDeathTest, ReadsOutsideAbort) {
  MemoryFileSystem files;
  write_counting_corpus(files, "c", 10);
  const Corpus corpus(files, "c");
  int32_t out[20];
  EXPECT_DEATH(corpus.read(5, 6, out), "tokens");
  EXPECT_DEATH(corpus.read(-1, 2, out), "tokens");
}

}  // namespace
}  // namespace tutti::data
