#include "tutti/checkpoint/store/safetensors.h"

#include <gtest/gtest.h>

#include "tutti/base/rng.h"
#include "tutti/checkpoint/testing/checkpoint_fixture.h"

namespace tutti::checkpoint {
namespace {

std::string length_field(uint64_t length) {
  std::string bytes;
  for (int i = 0; i < 8; ++i) bytes += static_cast<char>(length >> (8 * i) & 0xffU);
  return bytes;
}

// A file with this header and `data_bytes` zero bytes of data.
std::string file_with(const std::string& header, size_t data_bytes) {
  return length_field(header.size()) + header + std::string(data_bytes, '\0');
}

SafetensorsTensor entry(const std::string& name, DType dtype, std::vector<int64_t> shape) {
  return {name, dtype, std::move(shape), 0, 0};
}

TEST(Safetensors, LayoutParsesBack) {
  const SafetensorsLayout layout = layout_safetensors(
      {entry("b", DType::u8, {3}), entry("h", DType::bf16, {3, 5}), entry("e", DType::f32, {0, 4}),
       entry("s", DType::f32, {}), entry("d", DType::f64, {1}),
       entry("quote\"\xc3\xa9\\", DType::i32, {2, 3})},
      {{"format", "pt"}});
  EXPECT_EQ(layout.header.size() % 8, 0U);
  std::string file = layout.header;
  file.resize(static_cast<size_t>(layout.file_bytes));
  const SafetensorsHeader header = parse_safetensors(file, "f");
  EXPECT_EQ(header.metadata.at("format"), "pt");
  EXPECT_EQ(header.data_begin, static_cast<int64_t>(layout.header.size()));
  ASSERT_EQ(header.tensors.size(), 6U);
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    const SafetensorsTensor& tensor = header.tensors[i];
    EXPECT_EQ(tensor.name, layout.tensors[i].name);
    EXPECT_EQ(tensor.dtype, layout.tensors[i].dtype);
    EXPECT_EQ(tensor.shape, layout.tensors[i].shape);
    EXPECT_EQ(tensor.begin, layout.tensors[i].begin);
    EXPECT_EQ(tensor.end - tensor.begin, checked_bytes(tensor.dtype, tensor.shape));
    EXPECT_EQ(tensor.begin % dtype_bytes(tensor.dtype), 0) << tensor.name;
  }
}

TEST(Safetensors, NoTensorsAtAll) {
  const SafetensorsLayout layout = layout_safetensors({}, {});
  EXPECT_TRUE(parse_safetensors(layout.header, "f").tensors.empty());
}

TEST(Safetensors, EveryTypeHasAName) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64, DType::u8, DType::i8,
                            DType::u16, DType::i16, DType::i32, DType::i64, DType::u64}) {
    const SafetensorsLayout layout = layout_safetensors({entry("t", dtype, {2})}, {});
    std::string file = layout.header;
    file.resize(static_cast<size_t>(layout.file_bytes));
    EXPECT_EQ(parse_safetensors(file, "f").tensors.at(0).dtype, dtype);
  }
}

TEST(Safetensors, TruthValuesAreBytes) {
  const std::string header =
      R"({"h.0.attn.bias":{"dtype":"BOOL","shape":[2,3],"data_offsets":[0,6]}})";
  const SafetensorsTensor mask = parse_safetensors(file_with(header, 6), "f").tensors.at(0);
  EXPECT_EQ(mask.dtype, DType::u8);
  EXPECT_EQ(mask.end - mask.begin, 6);
}

TEST(Safetensors, BytesOfAShape) {
  EXPECT_EQ(checked_bytes(DType::f32, {}), 4);
  EXPECT_EQ(checked_bytes(DType::bf16, {3, 5}), 30);
  EXPECT_EQ(checked_bytes(DType::f32, {int64_t{1} << 62, 0}), 0);
  EXPECT_EQ(checked_bytes(DType::f32, {int64_t{1} << 62}), -1);
  EXPECT_EQ(checked_bytes(DType::u8, {int64_t{1} << 32, int64_t{1} << 32}), -1);
  EXPECT_EQ(checked_bytes(DType::u8, {-1, -1}), -1);
}

struct BadFile {
  const char* name;
  std::string bytes;
  ErrorKind kind;
  std::string message;
};

std::vector<BadFile> bad_files() {
  const std::string one = R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})";
  const auto entry_file = [](const std::string& body, size_t data_bytes) {
    return file_with(R"({"t":{)" + body + "}}", data_bytes);
  };
  constexpr ErrorKind kCorrupt = ErrorKind::corrupt;
  std::string huge = length_field(100'000'001);
  huge.resize(huge.size() + 100'000'001, ' ');
  return {
      {"empty file", "", kCorrupt, "0 bytes are too few"},
      {"short length field", "1234567", kCorrupt, "7 bytes are too few"},
      {"length beyond the file", length_field(100) + one, kCorrupt, "does not fit into the file"},
      {"length overflows", length_field(~uint64_t{0}) + one, kCorrupt, "18446744073709551615"},
      {"length as negative", length_field(uint64_t{1} << 63) + one, kCorrupt, "at most 100000000"},
      {"huge header", huge, kCorrupt, "at most 100000000"},
      {"no header", file_with("", 8), kCorrupt, "does not begin with '{'"},
      {"array as header", file_with("[1,2]", 0), kCorrupt, "does not begin with '{'"},
      {"space first", file_with(" " + one, 8), kCorrupt, "does not begin with '{'"},
      {"cut JSON", file_with(one.substr(0, one.size() - 1), 8), kCorrupt, "not valid JSON"},
      {"text after JSON", file_with(one + "x", 8), kCorrupt, "not valid JSON"},
      {"not UTF-8", file_with("{\"\xff\":1}", 0), kCorrupt, "not valid JSON"},
      {"nested too deep", file_with(R"({"t":{"shape":[[1]]}})", 0), kCorrupt, "nested deeper"},
      {"nested beyond the stack", file_with("{\"t\":" + std::string(1'000'000, '['), 0), kCorrupt,
       "nested deeper"},
      {"name twice",
       file_with(one.substr(0, one.size() - 1) +
                     R"(,"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}})",
                 8),
       kCorrupt, "'t' twice"},
      {"key twice",
       entry_file(R"("dtype":"F32","dtype":"I32","shape":[2],"data_offsets":[0,8])", 8), kCorrupt,
       "'dtype' twice"},
      {"tensor is a number", file_with(R"({"t":3})", 0), kCorrupt, "instead of an object"},
      {"unknown key", entry_file(R"("dtype":"F32","shape":[2],"data_offsets":[0,8],"x":1)", 8),
       kCorrupt, "unknown key 'x'"},
      {"no type", entry_file(R"("shape":[2],"data_offsets":[0,8])", 8), kCorrupt, "no 'dtype'"},
      {"no shape", entry_file(R"("dtype":"F32","data_offsets":[0,8])", 8), kCorrupt, "no 'shape'"},
      {"no offsets", entry_file(R"("dtype":"F32","shape":[2])", 8), kCorrupt, "no 'data_offsets'"},
      {"type is a number", entry_file(R"("dtype":1,"shape":[2],"data_offsets":[0,8])", 8), kCorrupt,
       "wrong type"},
      {"unknown type", entry_file(R"("dtype":"F9","shape":[2],"data_offsets":[0,8])", 8),
       ErrorKind::unsupported, "element type 'F9'"},
      {"shape is text", entry_file(R"("dtype":"F32","shape":"2","data_offsets":[0,8])", 8),
       kCorrupt, "wrong type"},
      {"negative dimension", entry_file(R"("dtype":"F32","shape":[-2],"data_offsets":[0,8])", 8),
       kCorrupt, "-2 in 'shape'"},
      {"fractional dimension", entry_file(R"("dtype":"F32","shape":[2.0],"data_offsets":[0,8])", 8),
       kCorrupt, "2.0 in 'shape'"},
      {"dimension beyond 63 bits",
       entry_file(R"("dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,8])", 8),
       kCorrupt, "18446744073709551615 in 'shape'"},
      {"shape overflows",
       entry_file(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])", 0),
       kCorrupt, "more than 2^63"},
      {"one offset", entry_file(R"("dtype":"F32","shape":[2],"data_offsets":[0])", 8), kCorrupt,
       "1 data offsets"},
      {"three offsets", entry_file(R"("dtype":"F32","shape":[2],"data_offsets":[0,8,8])", 8),
       kCorrupt, "3 data offsets"},
      {"negative offset", entry_file(R"("dtype":"F32","shape":[2],"data_offsets":[-8,0])", 8),
       kCorrupt, "-8 in 'data_offsets'"},
      {"ends before it begins", entry_file(R"("dtype":"F32","shape":[2],"data_offsets":[8,0])", 8),
       kCorrupt, "before it begins"},
      {"size does not match the shape",
       entry_file(R"("dtype":"F32","shape":[3],"data_offsets":[0,8])", 8), kCorrupt,
       "needs 12 bytes but has 8"},
      {"beyond the file", entry_file(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", 7),
       kCorrupt, "has only 7"},
      {"gap before the first", entry_file(R"("dtype":"F32","shape":[2],"data_offsets":[4,12])", 12),
       kCorrupt, "leaving a gap"},
      {"bytes after the last", entry_file(R"("dtype":"F32","shape":[2],"data_offsets":[0,8])", 9),
       kCorrupt, "1 bytes after the last tensor"},
      {"overlap",
       file_with(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                 R"("b":{"dtype":"U8","shape":[8],"data_offsets":[4,12]}})",
                 12),
       kCorrupt, "inside the one before it"},
      {"the same range twice",
       file_with(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8]},)"
                 R"("b":{"dtype":"U8","shape":[8],"data_offsets":[0,8]}})",
                 8),
       kCorrupt, "inside the one before it"},
      {"metadata is a list", file_with(R"({"__metadata__":[]})", 0), kCorrupt, "__metadata__"},
      {"metadata value is a number", file_with(R"({"__metadata__":{"a":1}})", 0), kCorrupt,
       "not a string"},
  };
}

TEST(Safetensors, BadHeadersAreClearErrors) {
  for (const BadFile& file : bad_files()) {
    SCOPED_TRACE(file.name);
    const Error error = error_of([&] { parse_safetensors(file.bytes, "some/file"); });
    EXPECT_TRUE(says(error, file.kind, file.message));
    EXPECT_TRUE(says(error, file.kind, "some/file"));
  }
}

// Whatever a byte of the header becomes: an error or a header whose ranges are inside the file.
TEST(Safetensors, RandomDamageNeverLeavesTheFile) {
  const SafetensorsLayout layout = layout_safetensors(
      {entry("a", DType::f32, {2, 3}), entry("b", DType::u8, {5}), entry("c", DType::i64, {})},
      {{"k", "v"}});
  std::string good = layout.header;
  good.resize(static_cast<size_t>(layout.file_bytes));
  int64_t refused = 0;
  for (uint64_t round = 0; round < 20000; ++round) {
    std::string file = good;
    for (uint64_t i = 0; i <= round % 3; ++i) {
      const size_t at = random_u64(1, round * 8 + i) % layout.header.size();
      file[at] = static_cast<char>(random_u64(2, round * 8 + i));
    }
    try {
      for (const SafetensorsTensor& tensor : parse_safetensors(file, "f").tensors) {
        ASSERT_GE(tensor.begin, 8);
        ASSERT_LE(tensor.begin, tensor.end);
        ASSERT_LE(tensor.end, layout.file_bytes);
      }
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace tutti::checkpoint
