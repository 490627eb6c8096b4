#include "tutti/data/corpus/checksums.h"

#include "tutti/base/testing/memory_file.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/corpus/dataset.h"
#include "tutti/data/corpus/inspect.h"
#include "tutti/data/testing/test_support.h"

namespace tutti::data {
namespace {

constexpr int32_t kTokens = 100000;  // i32: 400,000 bytes, six pieces and a part

void read_whole(const Corpus& corpus) {
  std::vector<int32_t> out(static_cast<size_t>(corpus.tokens()));
  corpus.read(0, corpus.tokens(), out.data());
}

std::string reading(MemoryFileSystem& files, const std::string& prefix) {
  return error_of(ErrorKind::corrupt, [&] { read_whole(Corpus(files, prefix)); });
}

TEST(CorpusChecksums, TheFileIsAsDescribed) {
  MemoryFileSystem files;
  write_corpus(files, "c", {{5, 6, 7}, {8}});
  const std::string bin = read_file(files, "c.bin");
  const std::string idx = read_file(files, "c.idx");
  std::string expected("TUTSUMS\0\1\0\0\0\0\0\1\0\10\0\0\0\0\0\0\0\x52\0\0\0\0\0\0\0", 32);
  const auto put = [](std::string& out, uint64_t hash) {
    out.append(reinterpret_cast<const char*>(&hash), sizeof hash);
  };
  put(expected, hash_text(idx));
  std::string table;
  put(table, hash_text(bin));
  put(expected, hash_text(table + expected));
  EXPECT_EQ(read_file(files, "c.checksums"), expected + table);
}

TEST(CorpusChecksums, DamageIsAnErrorWhereItIsRead) {
  MemoryFileSystem files;
  write_counting_corpus(files, "c", kTokens);
  files.damage("c.bin", 70001, 4);  // a bit of the second piece
  const Corpus corpus(files, "c");
  std::vector<int32_t> out(20000);
  corpus.read(0, 16384, out.data());  // the first piece to its last byte
  EXPECT_EQ(out[16383], 16383);
  for (int i = 0; i < 2; ++i) {  // also when it is read again
    const std::string message =
        error_of(ErrorKind::corrupt, [&] { corpus.read(16383, 2, out.data()); });
    EXPECT_TRUE(contains(message, "'c.bin' is damaged: its bytes 65536 to 131071")) << message;
    EXPECT_TRUE(contains(message, "'c.checksums'")) << message;
  }
  corpus.read(32768, 20000, out.data());
  EXPECT_EQ(out[0], 32768);
  corpus.read(kTokens, 0, out.data());
}

// What is trained on and evaluated goes through Dataset.
TEST(CorpusChecksums, NoDamagedTokenReachesASample) {
  MemoryFileSystem files;
  write_counting_corpus(files, "c", kTokens);
  for (const auto packing : {spec::Packing::none, spec::Packing::documents}) {
    const DatasetOptions options = {100, packing, 0, 1};
    std::vector<int32_t> tokens(400);
    const SampleRows rows = {tokens.data(), tokens.data() + 100, tokens.data() + 200,
                             tokens.data() + 300};
    const auto count_errors = [&] {
      const Dataset set(files, "c", options);
      int errors = 0;
      for (int64_t i = 0; i < set.evaluation_samples(0); ++i) {
        try {
          set.evaluation_sample(i, 0, rows);
        } catch (const Error& error) {
          EXPECT_TRUE(contains(error.what(), "bytes 327680 to 393215"));
          ++errors;
        }
      }
      return errors;
    };
    EXPECT_EQ(count_errors(), 0);
    files.damage("c.bin", 330000, 1);
    EXPECT_NEAR(count_errors(), 65536 / 400, 2);
    files.damage("c.bin", 330000, 1);  // and back
  }
}

TEST(CorpusChecksums, EveryFlippedBitIsFound) {
  MemoryFileSystem files;
  write_corpus(files, "c", {{5, 6, 7}, {8}, {9, 9}});
  for (const char* file : {"c.bin", "c.idx", "c.checksums"}) {
    for (int64_t at = 0; at < files.size_bytes(file); ++at) {
      for (int bit = 0; bit < 8; ++bit) {
        const auto mask = static_cast<uint8_t>(1U << static_cast<unsigned>(bit));
        files.damage(file, at, mask);
        EXPECT_THROW(read_whole(Corpus(files, "c")), Error) << file << " " << at;
        files.damage(file, at, mask);
      }
    }
  }
  read_whole(Corpus(files, "c"));
}

TEST(CorpusChecksums, AreRecordedAtFirstUse) {
  MemoryFileSystem files;
  write_counting_corpus(files, "c", kTokens);
  const std::string written = read_file(files, "c.checksums");
  files.remove_file("c.checksums");
  read_whole(Corpus(files, "c"));  // as one that was made elsewhere
  int64_t last = 0;
  record_checksums(files, "c", [&](int64_t done, int64_t total) {
    EXPECT_EQ(total, 4 * kTokens);
    last = done;
  });
  EXPECT_EQ(last, 4 * kTokens);
  EXPECT_EQ(read_file(files, "c.checksums"), written);
  EXPECT_EQ(files.list("/").size(), 3U);
  files.damage("c.bin", 0, 1);
  record_checksums(files, "c");  // they are there
  EXPECT_TRUE(contains(reading(files, "c"), "bytes 0 to 65535"));
}

TEST(CorpusChecksums, RecordedPropertiesAreVerified) {
  MemoryFileSystem files;
  write_counting_corpus(files, "c", kTokens);
  files.remove_file("c.checksums");
  const std::string hash = hash_hex(hash_text(read_file(files, "c.bin")));
  write_text(files, "c.meta.json", R"({"bin_xxh3": ")" + hash + "\"}");
  files.damage("c.bin", 99, 1);
  const std::string message = error_of(ErrorKind::corrupt, [&] { record_checksums(files, "c"); });
  EXPECT_TRUE(contains(message, "'c.bin' is damaged") && contains(message, hash)) << message;
  EXPECT_EQ(files.list("/").size(), 3U);
  files.damage("c.bin", 99, 1);
  record_checksums(files, "c");
  files.remove_file("c.checksums");
  write_text(files, "c.meta.json", "{");  // does not block the data
  record_checksums(files, "c");
  read_whole(Corpus(files, "c"));
}

TEST(CorpusChecksums, FailedWritesLeaveNothing) {
  MemoryFileSystem files;
  write_counting_corpus(files, "c", 10);
  files.remove_file("c.checksums");
  for (const ErrorKind kind : {ErrorKind::permission, ErrorKind::no_space, ErrorKind::io}) {
    for (int64_t i = 0; i < 4; ++i) {  // create, append, sync, rename
      files.start_record();
      files.fail_operation(i, kind, false);
      error_of(kind, [&] { record_checksums(files, "c"); });
      files.clear_faults();
      EXPECT_EQ(files.list("/").size(), 2U) << i;
    }
  }
}

TEST(CorpusChecksums, ChecksumsOfAnotherCorpusNameTheRemedy) {
  MemoryFileSystem files;
  write_counting_corpus(files, "c", 10);
  write_counting_corpus(files, "d", 11);
  for (const char* suffix : {".bin", ".idx"}) {
    write_text(files, std::string("c") + suffix, read_file(files, std::string("d") + suffix));
  }
  const std::string message = reading(files, "c");
  EXPECT_TRUE(contains(message, "'c.checksums' is of another corpus: it describes 40 bytes"))
      << message;
  EXPECT_TRUE(contains(message, "remove 'c.checksums'")) << message;
  files.remove_file("c.checksums");
  read_whole(Corpus(files, "c"));
}

TEST(CorpusChecksums, InspectionNamesAllDamage) {
  MemoryFileSystem files;
  write_counting_corpus(files, "c", kTokens);
  const auto seen = [&] {
    for (const CorpusCheck& check : inspect_corpus(files, "c").checks) {
      if (check.name == "checksums") return check;
    }
    return CorpusCheck{};
  };
  EXPECT_TRUE(seen().ok);
  for (const int64_t at : {1, 140000, 200000, 399999}) files.damage("c.bin", at, 1);
  EXPECT_FALSE(seen().ok);
  EXPECT_EQ(seen().detail,
            "'c.bin' is damaged in bytes 0 to 65535, 131072 to 262143, 393216 to 399999.");
  files.remove_file("c.checksums");
  EXPECT_TRUE(seen().ok);
}

}  // namespace
}  // namespace tutti::data
