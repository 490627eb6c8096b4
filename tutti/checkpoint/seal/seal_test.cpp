#include "tutti/checkpoint/seal/seal.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <set>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/store/joint_save.h"
#include "tutti/checkpoint/store/verify.h"
#include "tutti/checkpoint/testing/checkpoint_fixture.h"

namespace tutti::checkpoint {
namespace {

constexpr const char* kKeyFile = "keys/first";
constexpr const char* kOtherFile = "keys/second";
constexpr const char* kStep = "run/step-00000007";

std::string digits(char digit) { return std::string(64, digit); }

class SealTest : public ::testing::Test {
 protected:
  SealTest() {
    ::unsetenv(kKeyVariable);
    files_.create_directories("keys");
    write_file_atomic(files_, kKeyFile, digits('a') + "\n");
    write_file_atomic(files_, kOtherFile, digits('b') + "\n");
  }
  ~SealTest() override { ::unsetenv(kKeyVariable); }

  WriteOptions sealed() {
    WriteOptions options = small_pieces();
    options.key_file = kKeyFile;
    return options;
  }
  void save(int64_t step) {
    const FakeRun run(step);
    write_checkpoint(files_, "run", run.tensors, run.state, sealed());
  }
  std::string manifest_path() const { return join_path(kStep, kManifestName); }
  Manifest manifest() {
    return parse_manifest(read_file(files_, manifest_path()), manifest_path());
  }
  // With right checksums, which takes no key.
  void forge(const Manifest& manifest) {
    write_file_atomic(files_, manifest_path(), format_manifest(manifest));
  }

  MemoryFileSystem files_;
};

TEST_F(SealTest, SealDependsOnTheChunkOffset) {
  const SealKey key(SealKey::Secret{1, 2, 3});
  const ShardSeal first(key, digits('1'));
  const ShardSeal second(key, digits('2'));
  for (const size_t size : {0, 1, 15, 16, 17, 63, 64, 65, 1000}) {
    const std::string piece(size, 'x');
    std::string stored(size + kSealBytes, '\0');
    std::string back(size, '\0');
    first.seal(5, piece, stored.data());
    ASSERT_TRUE(first.open(5, stored, back.data())) << size;
    EXPECT_EQ(back, piece);
    EXPECT_FALSE(first.open(6, stored, back.data())) << size;
    EXPECT_FALSE(second.open(5, stored, back.data())) << size;
    EXPECT_FALSE(first.open(5, std::string_view(stored).substr(1), back.data())) << size;
    for (size_t i = 0; i < stored.size(); ++i) {
      std::string changed = stored;
      changed[i] = static_cast<char>(changed[i] ^ 1);
      EXPECT_FALSE(first.open(5, changed, back.data())) << size << " at " << i;
    }
  }
  EXPECT_FALSE(first.open(0, "short", nullptr));
}

TEST_F(SealTest, ASealedCheckpointHoldsTheSame) {
  save(7);
  Reader reader(files_, kStep, serially);
  EXPECT_EQ(difference_from_fake_run(reader), "");
  reader.verify_contents();
  const Manifest& manifest = reader.manifest();
  ASSERT_TRUE(manifest.seal.has_value());
  EXPECT_EQ(manifest.seal->key_file, kKeyFile);
  std::set<std::string> salts;
  for (const FileRecord& file : manifest.files) {
    salts.insert(file.salt);
    EXPECT_EQ(files_.size_bytes(join_path(kStep, file.name)), file.bytes);
    EXPECT_EQ(file.bytes,
              file.content_bytes + kSealBytes * static_cast<int64_t>(file.chunks.size()));
  }
  EXPECT_EQ(salts.size(), manifest.files.size());
  EXPECT_TRUE(verify_checkpoint(files_, kStep, {}, serially).empty());
  EXPECT_EQ(newest_step(files_, "run"), 7);
}

TEST_F(SealTest, NothingOfATensorIsInAnyFile) {
  save(7);
  const FakeRun run(7);
  std::string all;
  for (const DirectoryEntry& entry : files_.list(kStep)) {
    all += read_file(files_, join_path(kStep, entry.name));
  }
  for (size_t i = 0; i < run.tensors.size(); ++i) {
    const std::string& bytes = run.data(i);
    for (size_t at = 0; at + 8 <= bytes.size(); at += 4) {
      EXPECT_EQ(all.find(bytes.substr(at, 8)), std::string::npos) << run.tensors[i].name;
    }
  }
  EXPECT_EQ(all.find(digits('a')), std::string::npos) << "the key";
}

TEST_F(SealTest, ARangeOpensOnlyItsChunks) {
  save(7);
  // Damage in a chunk that is not needed does not matter to a range.
  const TensorRecord wide = Reader(files_, kStep, serially).tensor("matrix");
  const Slice slice = wide.slices.front();
  const FileRecord file = manifest().files[static_cast<size_t>(slice.file)];
  const std::string path = join_path(kStep, file.name);
  std::string bytes = read_file(files_, path);
  bytes.back() = static_cast<char>(bytes.back() ^ 1);
  files_.create(path)->append(bytes.data(), bytes.size());
  Reader reader(files_, kStep, serially);
  std::vector<char> row(24 * 4);  // bytes: some of the values are not numbers
  reader.load({{"matrix", DType::f32, {1, 24}, row.data(), {7, 24}, {2, 0}}});
  const FakeRun run(7);
  EXPECT_EQ(std::memcmp(row.data(), run.data(0).data() + 2 * 24 * 4, row.size()), 0);
  EXPECT_TRUE(says(error_of([&] { reader.verify_contents(); }), ErrorKind::corrupt, file.name));
}

TEST_F(SealTest, WhatWasReleasedIsOpenedAgain) {
  FakeRun run(7);
  run.add("long", DType::f32, {60000});
  WriteOptions options = sealed();
  options.chunk_bytes = 20000;
  options.max_shard_bytes = 1 << 20;
  write_checkpoint(files_, "run", run.tensors, run.state, options);
  Reader reader(files_, kStep, serially);
  const std::string& expected = run.data(run.tensors.size() - 1);
  for (int i = 0; i < 2; ++i) {
    EXPECT_TRUE(reader.bytes("long") == expected);
    reader.release("long");
  }
  EXPECT_EQ(reader.bytes("matrix"), run.data(0));
}

TEST_F(SealTest, AWrongOrMissingKeyIsRefused) {
  save(7);
  const auto open = [&] { Reader(files_, kStep, serially); };
  ::setenv(kKeyVariable, kOtherFile, 1);
  EXPECT_TRUE(says(error_of(open), ErrorKind::permission, "is sealed with key"));
  EXPECT_TRUE(says(error_of([&] { newest_valid(files_, "run", {}, serially); }),
                   ErrorKind::permission, "is sealed with key"));
  EXPECT_TRUE(says(error_of([&] { verify_checkpoint(files_, kStep, {}, serially); }),
                   ErrorKind::permission, kKeyVariable));
  ::setenv(kKeyVariable, "keys/none", 1);
  EXPECT_TRUE(says(error_of(open), ErrorKind::permission, "keys/none"));
  ::unsetenv(kKeyVariable);
  files_.rename(kKeyFile, "keys/moved");
  EXPECT_TRUE(says(error_of(open), ErrorKind::permission, kKeyFile));
  ::setenv(kKeyVariable, "keys/moved", 1);
  open();
  write_file_atomic(files_, "keys/moved", digits('a').substr(1) + "\n");
  EXPECT_TRUE(says(error_of(open), ErrorKind::usage, "64 hex digits"));
  // What it holds is listed without the key.
  ::setenv(kKeyVariable, kOtherFile, 1);
  ASSERT_EQ(list_checkpoints(files_, "run").size(), 1U);
  EXPECT_TRUE(list_checkpoints(files_, "run").front().valid);
}

TEST_F(SealTest, EveryChangedByteIsFound) {
  save(7);
  for (const DirectoryEntry& entry : files_.list(kStep)) {
    const std::string path = join_path(kStep, entry.name);
    const std::string bytes = read_file(files_, path);
    for (size_t i = 0; i < bytes.size(); i += 13) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ 4);
      files_.create(path)->append(changed.data(), changed.size());
      EXPECT_FALSE(verify_checkpoint(files_, kStep, {}, serially).empty()) << path << " at " << i;
    }
    files_.create(path)->append(bytes.data(), bytes.size());
  }
  EXPECT_TRUE(verify_checkpoint(files_, kStep, {}, serially).empty());
}

TEST_F(SealTest, AForgedCheckpointIsRefused) {
  save(7);
  const Manifest good = manifest();
  const auto open = [&] { Reader(files_, kStep, serially); };
  Manifest other = good;
  other.state.seed += 1;
  forge(other);
  EXPECT_TRUE(says(error_of(open), ErrorKind::corrupt, "signed"));
  EXPECT_FALSE(verify_checkpoint(files_, kStep, {}, serially).empty());

  EXPECT_TRUE(says(error_of([&] { signed_part("{}", "m"); }), ErrorKind::corrupt, "not signed"));

  // Two chunks are swapped.
  other = good;
  FileRecord& file = other.files.front();
  const std::string path = join_path(kStep, file.name);
  std::string bytes = read_file(files_, path);
  std::swap_ranges(bytes.begin(), bytes.begin() + 100, bytes.begin() + 100);
  std::swap(file.chunks[0], file.chunks[1]);
  files_.create(path)->append(bytes.data(), bytes.size());
  forge(other);
  EXPECT_TRUE(says(error_of(open), ErrorKind::corrupt, "signed"));
  sign(other, *read_seal_key(files_, kKeyFile));
  forge(other);
  EXPECT_TRUE(says(error_of(open), ErrorKind::corrupt, "were sealed there"));
}

TEST_F(SealTest, SwappedCheckpointsAreRefused) {
  save(7);
  save(8);
  files_.remove_tree("run/step-00000008");
  files_.rename(kStep, "run/step-00000008");
  for (const char* path : {"run/step-00000008", "run/step-00000008/"}) {
    EXPECT_TRUE(says(error_of([&] { Reader(files_, path, serially); }), ErrorKind::corrupt,
                     "saved at step 7"));
  }
}

// What a manifest calls its key file is read before anything is known of the manifest.
TEST_F(SealTest, NotEverythingIsReadAsAKey) {
  for (const std::string& text : {std::string(), digits('g'), digits('a') + "a",
                                  digits('a') + std::string(5000, ' '), std::string(64, '\0')}) {
    files_.create("keys/wrong")->append(text.data(), text.size());
    EXPECT_TRUE(says(error_of([&] { read_seal_key(files_, "keys/wrong"); }), ErrorKind::usage,
                     "64 hex digits"))
        << text.size();
  }
  EXPECT_TRUE(says(error_of([&] { read_seal_key(posix_file_system(), "/dev/zero"); }),
                   ErrorKind::permission, "chmod 600"));
}

TEST_F(SealTest, KeysReadableByOthersAreRefused) {
  FileSystem& files = posix_file_system();
  const std::string path = join_path(testing::TempDir(), fmt::format("tutti_key_{}", ::getpid()));
  write_file_atomic(files, path, digits('c'));
  for (const mode_t mode : {0640U, 0604U, 0620U, 0602U}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_TRUE(
        says(error_of([&] { read_seal_key(files, path); }), ErrorKind::permission, "chmod 600"));
  }
  for (const mode_t mode : {0600U, 0400U}) {
    ASSERT_EQ(::chmod(path.c_str(), mode), 0);
    EXPECT_EQ(read_seal_key(files, path)->id().size(), 16U);
  }
  files.remove_file(path);
}

TEST_F(SealTest, RanksSealTheirShards) {
  const FakeRun run(7);
  const auto save = [&](int rank) {
    FakeRun all(7);
    std::vector<TensorSource> mine;
    for (size_t i = 0; i < all.tensors.size(); ++i) {
      if (static_cast<int>(i % 2) == rank) mine.push_back(all.tensors[i]);
    }
    const JointSave joint = {.rank = rank, .ranks = 2, .attempt = "1", .timeout_seconds = 20};
    write_joint_checkpoint(files_, "run", mine, all.state, sealed(), joint);
  };
  std::thread other([&] { save(1); });
  save(0);
  other.join();
  std::vector<float> matrix(7 * 24);
  std::vector<char> half(3 * 5 * 2);
  Reader reader(files_, kStep, serially);
  reader.load(
      {{"matrix", DType::f32, {7, 24}, matrix.data()}, {"half", DType::bf16, {3, 5}, half.data()}});
  EXPECT_EQ(std::memcmp(matrix.data(), run.data(0).data(), run.data(0).size()), 0);
  EXPECT_EQ(std::memcmp(half.data(), run.data(1).data(), run.data(1).size()), 0);
  EXPECT_TRUE(verify_checkpoint(files_, kStep, {}, serially).empty());
}

// Rank 0 signs what it merges: a forged part would become one of an owner of the key.
TEST_F(SealTest, AForgedPartIsNotMerged) {
  save(7);  // replaced, so that the part stays where rank 0 looks for it
  const FakeRun run(7);
  const std::vector<TensorSource> first(run.tensors.begin() + 1, run.tensors.end());
  const JointSave joint = {.rank = 1, .ranks = 2, .attempt = "1", .timeout_seconds = 20};
  write_file_atomic(files_, join_path(kStep, "saving-1"), "");
  write_joint_checkpoint(files_, "run", {run.tensors[0]}, run.state, sealed(), joint);
  const std::string part = join_path(kStep, "part-1-00001.json");
  Manifest forged = parse_manifest(read_file(files_, part), part, Coverage::part);
  forged.created = "2000-01-01T00:00:00Z";
  write_file_atomic(files_, part, format_manifest(forged));
  JointSave merging = joint;
  merging.rank = 0;
  EXPECT_TRUE(says(
      error_of([&] { write_joint_checkpoint(files_, "run", first, run.state, sealed(), merging); }),
      ErrorKind::corrupt, "not signed"));
}

TEST_F(SealTest, WithoutAKeyNothingChanges) {
  const FakeRun run(7);
  write_checkpoint(files_, "run", run.tensors, run.state, small_pieces());
  const std::string text = read_file(files_, manifest_path());
  EXPECT_NE(text.find("\"format_version\": 1,"), std::string::npos);
  EXPECT_EQ(text.find("seal"), std::string::npos);
  EXPECT_EQ(text.find("salt"), std::string::npos);
}

TEST_F(SealTest, AWriterWithoutItsKeyFails) {
  const FakeRun run(7);
  WriteOptions options = sealed();
  options.key_file = "keys/none";
  EXPECT_TRUE(
      says(error_of([&] { write_checkpoint(files_, "run", run.tensors, run.state, options); }),
           ErrorKind::permission, "keys/none"));
  EXPECT_FALSE(files_.exists(manifest_path()));
}

// On the machine's own files, where TUTTI_SEAL_FOLDER says, for TUTTI_SEAL_BYTES: what it costs.
TEST(Seal, CostsTimeAndChangesNothing) {
  const char* wanted = std::getenv("TUTTI_SEAL_BYTES");
  const char* where = std::getenv("TUTTI_SEAL_FOLDER");
  const int64_t bytes = wanted != nullptr ? std::atoll(wanted) : int64_t{10'000'001};
  const std::string folder = join_path(where != nullptr ? where : testing::TempDir(),
                                       fmt::format("tutti_seal_{}", ::getpid()));
  FileSystem& files = posix_file_system();
  files.create_directories(folder);
  const std::string key_file = join_path(folder, "key");
  write_file_atomic(files, key_file, digits('c'));
  ASSERT_EQ(::chmod(key_file.c_str(), 0600), 0);
  std::string data(static_cast<size_t>(bytes), '\0');
  for (size_t i = 0; i < data.size(); i += 7) data[i] = static_cast<char>(i * 31);
  std::string back(data.size(), '\0');
  for (const bool sealed : {false, true}) {
    WriteOptions options;
    if (sealed) options.key_file = key_file;
    State state;
    state.step = sealed ? 1 : 0;
    const auto measured = [&](const char* what, const auto& work) {
      const double start = monotonic_seconds();
      const std::clock_t begin = std::clock();
      work();
      fmt::print("{} {} of {} bytes: {:.3f} s of processors, {:.3f} s\n",
                 sealed ? "sealed" : "plain", what, bytes,
                 static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC,
                 monotonic_seconds() - start);
    };
    std::string path;
    measured("save", [&] {
      path = write_checkpoint(files, folder, {{"data", DType::u8, {bytes}, data.data(), {}, {}}},
                              state, options)
                 .path;
    });
    std::fill(back.begin(), back.end(), '\0');
    measured("load", [&] { Reader(files, path).load("data", DType::u8, {bytes}, back.data()); });
    EXPECT_TRUE(back == data);
  }
  files.remove_tree(folder);
}

}  // namespace
}  // namespace tutti::checkpoint
