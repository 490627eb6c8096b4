#include "tutti/checkpoint/store/piece.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/seal/seal.h"
#include "tutti/checkpoint/testing/checkpoint_fixture.h"

namespace tutti::checkpoint {
namespace {

constexpr int64_t kPieceRows = 6;
constexpr int64_t kPieceColumns = 5;
constexpr Piece kFirst = {.step = 4, .set = 7, .rank = 0, .ranks = 2};
constexpr Piece kSecond = {.step = 4, .set = 7, .rank = 1, .ranks = 2};

// Rank r of two has the rows r, r + 2, ... of a matrix, in several slices; rank 0 an empty tensor.
void write(FileSystem& files, const std::string& folder, const Piece& piece, float first = 1,
           const std::string& key_file = {}) {
  std::vector<float> values(kPieceRows * kPieceColumns);
  std::iota(values.begin(), values.end(), first);
  std::vector<TensorSource> tensors;
  for (int64_t row = piece.rank; row < kPieceRows; row += piece.ranks) {
    const float* data = values.data() + row * kPieceColumns;
    tensors.push_back({"matrix",
                       DType::f32,
                       {1, kPieceColumns},
                       data,
                       {kPieceRows, kPieceColumns},
                       {row, 0},
                       {}});
  }
  if (piece.rank == 0) tensors.push_back({"empty", DType::f32, {0, 4}, nullptr, {}, {}, {}});
  write_piece(files, folder, piece, tensors, FakeRun(piece.step).state, key_file);
}

// As over a network, `most` bytes at a time.
void carry(FileSystem& files, const std::string& from, const std::string& to, const Piece& piece,
           int64_t most) {
  PieceSource source(files, from, piece);
  PieceSink sink(files, to, piece, source.part_bytes());
  std::vector<char> some(static_cast<size_t>(most));
  int64_t all = 0;
  for (int64_t size = 0; (size = source.read(some.data(), most)) > 0; all += size) {
    sink.append(some.data(), size);
  }
  EXPECT_EQ(all, source.bytes());
  sink.finish();
}

TEST(Piece, PiecesOfASealedRunAreSealed) {
  MemoryFileSystem files;
  write_file_atomic(files, "key", std::string(64, 'a'));
  write_file_atomic(files, "other", std::string(64, 'b'));
  write(files, "plain", kFirst);
  const auto all_of = [&](const std::string& folder) {
    std::string all;
    for (const DirectoryEntry& entry : files.list(pieces_path(folder, kFirst))) {
      all += read_file(files, join_path(pieces_path(folder, kFirst), entry.name));
    }
    return all;
  };
  const float row[] = {1, 2, 3, 4, 5};
  const std::string bytes(reinterpret_cast<const char*>(row), sizeof row);
  EXPECT_NE(all_of("plain").find(bytes), std::string::npos);
  write(files, "a", kFirst, 1, "key");
  EXPECT_EQ(all_of("a").find(bytes), std::string::npos);
  write(files, "b", kSecond, 1, "key");
  carry(files, "b", "a", kSecond, 64);
  Reader reader(files, join_pieces(files, "a", kFirst));
  reader.verify_contents();
  EXPECT_TRUE(reader.manifest().seal.has_value());
  std::vector<float> matrix(kPieceRows * kPieceColumns), expected(kPieceRows * kPieceColumns);
  std::iota(expected.begin(), expected.end(), 1.0F);
  reader.load("matrix", DType::f32, {kPieceRows, kPieceColumns}, matrix.data());
  EXPECT_EQ(matrix, expected);
  // A part that is of another key, or of none, is not joined.
  for (const char* key : {"other", ""}) {
    write(files, "b", kSecond, 1, key);
    carry(files, "b", "a", kSecond, 64);
    const Error error = error_of([&] { join_pieces(files, "a", kFirst); });
    EXPECT_EQ(error.kind(), ErrorKind::corrupt) << error.what();
  }
}

TEST(Piece, PiecesOfAllRanksFormACheckpoint) {
  for (const int64_t most : {1, 100, 1 << 20}) {
    MemoryFileSystem files;
    write(files, "a", kFirst);
    write(files, "b", kSecond);
    carry(files, "b", "a", kSecond, most);
    EXPECT_EQ(list_pieces(files, "a"), (std::vector<Piece>{kFirst, kSecond}));
    Reader reader(files, join_pieces(files, "a", kFirst));
    reader.verify_contents();
    EXPECT_EQ(reader.manifest().state.next_sample, FakeRun(4).state.next_sample);
    std::vector<float> matrix(kPieceRows * kPieceColumns), expected(kPieceRows * kPieceColumns);
    std::iota(expected.begin(), expected.end(), 1.0F);
    reader.load("matrix", DType::f32, {kPieceRows, kPieceColumns}, matrix.data());
    EXPECT_EQ(matrix, expected);
  }
}

TEST(Piece, OnlyWholePiecesAreListed) {
  MemoryFileSystem files;
  EXPECT_TRUE(list_pieces(files, "none").empty());
  write(files, "a", kFirst);
  // On its way: nothing of it counts before it has arrived.
  PieceSource source(files, "a", kFirst);
  PieceSink sink(files, "b", kFirst, source.part_bytes());
  std::vector<char> bytes(static_cast<size_t>(source.bytes()));
  source.read(bytes.data(), source.bytes());
  sink.append(bytes.data(), source.bytes() - 1);
  EXPECT_TRUE(list_pieces(files, "b").empty());
  EXPECT_TRUE(says(error_of([&] { sink.finish(); }), ErrorKind::corrupt, "fewer bytes"));
  sink.append(bytes.data() + source.bytes() - 1, 1);
  sink.finish();
  EXPECT_EQ(list_pieces(files, "b"), std::vector<Piece>{kFirst});
  EXPECT_TRUE(says(error_of([&] { sink.append("x", 1); }), ErrorKind::corrupt, "more bytes"));
  // A shard is cut; strange names lie around.
  const std::string folder = pieces_path("a", kFirst);
  for (const DirectoryEntry& entry : files.list(folder)) {
    if (entry.name.find("shard") != std::string::npos) {
      files.create(join_path(folder, entry.name))->close();
    }
  }
  files.create_directories("a/step-00000004");
  files.create_directories("a/step-00000004-xyz");
  files.create(join_path(folder, "part-00002-of-00002.json"))->close();
  EXPECT_TRUE(list_pieces(files, "a").empty());
}

TEST(Piece, OlderSetsLeave) {
  MemoryFileSystem files;
  const Piece later = {.step = 5, .set = 7, .rank = 0, .ranks = 2};
  const Piece again = {.step = 5, .set = 8, .rank = 0, .ranks = 2};
  for (const Piece& piece : {kFirst, later, again}) write(files, "a", piece);
  EXPECT_EQ(list_pieces(files, "a").size(), 3U);
  remove_other_pieces(files, "a", later);
  EXPECT_EQ(list_pieces(files, "a"), std::vector<Piece>{later});
}

TEST(Piece, DamageIsFound) {
  MemoryFileSystem files;
  write(files, "a", kFirst);
  write(files, "a", kSecond, 2);
  const std::string path = join_pieces(files, "a", kFirst);
  const Manifest manifest = Reader(files, path).manifest();
  const std::string shard = join_path(path, manifest.files[0].name);
  files.damage(shard, files.size_bytes(shard) - 1, 1);
  EXPECT_TRUE(says(error_of([&] { Reader(files, path).verify_contents(); }), ErrorKind::corrupt,
                   "checksum"));
}

}  // namespace
}  // namespace tutti::checkpoint
