#include "tutti/checkpoint/gguf/file.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti/base/rng.h"
#include "tutti/base/testing/memory_file.h"

namespace tutti::checkpoint {
namespace {

void put(FileSystem& files, const std::string& path, const std::string& bytes) {
  const auto file = files.create(path);
  file->append(bytes.data(), bytes.size());
  file->close();
}

class GgufFiles : public testing::Test {
 protected:
  GgufFiles() {
    const GgufMetadata metadata = {
        {"general.architecture", {GgufKind::string, GgufKind::string, "llama"}},
        {"a.count", {GgufKind::u32, GgufKind::u32, 7}},
        {"a.real", {GgufKind::f32, GgufKind::f32, 0.5}},
        {"a.flag", {GgufKind::boolean, GgufKind::boolean, true}},
        {"a.list", {GgufKind::array, GgufKind::string, Json::array({"x", "é"})}}};
    const std::vector<GgufTensor> tensors = {{"w", GgufType::q8_0, {2, 32}},
                                             {"b", GgufType::f32, {3}}};
    write_gguf(files_, "m.gguf", metadata, tensors,
               [](const GgufTensor& tensor, const GgufAppend& append) {
                 const std::string bytes(static_cast<size_t>(tensor.bytes), tensor.name[0]);
                 append(bytes.data(), bytes.size());
               });
    bytes_ = read_file(files_, "m.gguf");
  }
  std::string refusal(const std::string& bytes) {
    put(files_, "d.gguf", bytes);
    try {
      GgufFile(files_, "d.gguf");
      return "";
    } catch (const Error& error) {
      EXPECT_TRUE(error.kind() == ErrorKind::corrupt || error.kind() == ErrorKind::unsupported);
      return error.what();
    }
  }
  MemoryFileSystem files_;
  std::string bytes_;
};

TEST_F(GgufFiles, RoundTrip) {
  const GgufFile file(files_, "m.gguf");
  EXPECT_EQ(*file.find("general.architecture"), "llama");
  EXPECT_EQ(*file.find("a.count"), 7);
  EXPECT_EQ(*file.find("a.real"), 0.5);
  EXPECT_EQ(*file.find("a.flag"), true);
  EXPECT_EQ(*file.find("a.list"), Json::array({"x", "é"}));
  EXPECT_EQ(file.find("a.none"), nullptr);
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.tensor("w")->shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(file.bytes(*file.tensor("w")), std::string(68, 'w'));
  EXPECT_EQ(file.tensor("b")->offset, 96);
  EXPECT_EQ(file.bytes(*file.tensor("b")), std::string(12, 'b'));
  EXPECT_FALSE(files_.exists("m.gguf.tmp"));
}

TEST_F(GgufFiles, EveryTruncationIsRefused) {
  // The padding after the last tensor may be missing.
  const GgufFile file(files_, "m.gguf");
  const size_t used = bytes_.size() - 32 + 12;
  for (size_t size = 0; size < used; ++size) {
    EXPECT_NE(refusal(bytes_.substr(0, size)), "") << size;
  }
  EXPECT_EQ(refusal(bytes_.substr(0, used)), "");
}

TEST_F(GgufFiles, DamageIsReportedOrHarmless) {
  EXPECT_NE(refusal("GGML" + bytes_.substr(4)).find("not a GGUF file"), std::string::npos);
  std::string other = bytes_;
  other[4] = 9;
  EXPECT_NE(refusal(other).find("version 9"), std::string::npos);
  const size_t at = bytes_.find("a.count");
  other = bytes_;
  other[at + 7] = 99;
  EXPECT_NE(refusal(other).find("'a.count' has the unknown type 99"), std::string::npos);
  other = bytes_;
  other[bytes_.find("\1\0\0\0\0\0\0\0w", 0, 9) + 9 + 4 + 16] = 12;
  EXPECT_NE(refusal(other).find("tensor 'w' has the element type 12"), std::string::npos);
  const uint64_t key = stream_key(5, "gguf");
  int refused = 0;
  for (uint64_t round = 0; round < 20000; ++round) {
    other = bytes_;
    for (uint64_t flip = 0; flip < 1 + round % 4; ++flip) {
      const uint64_t draw = random_u64(key, 4 * round + flip);
      other[draw % (other.size() - 128)] = static_cast<char>(draw >> 32U);
    }
    refused += refusal(other).empty() ? 0 : 1;
  }
  EXPECT_GT(refused, 5000);
}

}  // namespace
}  // namespace tutti::checkpoint
