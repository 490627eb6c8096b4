#include "tutti/checkpoint/store/manifest.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tutti/base/hash.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/testing/checkpoint_fixture.h"
#include "tutti_test_paths.h"

namespace tutti::checkpoint {
namespace {

Manifest example() {
  Manifest manifest;
  manifest.state = FakeRun(3).state;
  manifest.tutti_version = "1.2.3";
  manifest.created = "2026-01-31T12:00:00Z";
  manifest.chunk_bytes = 64;
  manifest.files = {{"a.safetensors", 100, {1, 2}}, {"b.safetensors", 64, {0xffffffffffffffffU}}};
  manifest.tensors = {
      {"whole", DType::f32, {2, 3}, {{0, 8, 32, {0, 0}, {2, 3}}}},
      {"split", DType::bf16, {4, 2}, {{0, 32, 40, {0, 0}, {2, 2}}, {1, 8, 16, {2, 0}, {2, 2}}}},
      {"scalar", DType::i64, {}, {{1, 16, 24, {}, {}}}},
  };
  return manifest;
}

// The text with `from` replaced and a checksum that holds again: an honest but wrong manifest.
std::string resealed(const std::string& text, const std::string& from, const std::string& to) {
  std::string body = text.substr(0, text.rfind("  \"manifest_xxh3\""));
  const size_t at = body.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  body.replace(at, from.size(), to);
  return body + "  \"manifest_xxh3\": \"" + hash_hex(hash_text(body)) + "\"\n}\n";
}

TEST(Manifest, RoundTrip) {
  const Manifest manifest = example();
  const std::string text = format_manifest(manifest);
  const Manifest back = parse_manifest(text, "m");
  EXPECT_EQ(format_manifest(back), text);
  EXPECT_EQ(back.state.seed, manifest.state.seed);
  EXPECT_EQ(back.state.validation_loss, manifest.state.validation_loss);
  EXPECT_EQ(back.state.training.at("best_loss").get<double>(), 0.1);
  EXPECT_EQ(back.tensors[1].slices[1].offset, (std::vector<int64_t>{2, 0}));
  EXPECT_EQ(back.files[1].chunks, manifest.files[1].chunks);
  EXPECT_EQ(back.total_bytes(), 164);
  EXPECT_EQ(Json::parse(text).at("manifest_xxh3").get<std::string>().size(), 16U);
}

TEST(Manifest, NonFiniteLossIsNoLoss) {
  Manifest manifest = example();
  manifest.state.validation_loss = std::nan("");
  manifest.state.training["best_loss"] = INFINITY;
  const Manifest back = parse_manifest(format_manifest(manifest), "m");
  EXPECT_FALSE(back.state.validation_loss.has_value());
  EXPECT_TRUE(back.state.training.at("best_loss").is_null());
}

TEST(Manifest, AnyFlippedBitOrMissingByteIsFound) {
  const std::string text = format_manifest(example());
  for (size_t i = 0; i < text.size(); ++i) {
    for (unsigned bit = 0; bit < 8; ++bit) {
      std::string damaged = text;
      damaged[i] = static_cast<char>(static_cast<unsigned char>(damaged[i]) ^ 1U << bit);
      EXPECT_THROW(parse_manifest(damaged, "m"), Error) << i << " bit " << bit;
    }
    EXPECT_THROW(parse_manifest(text.substr(0, i), "m"), Error) << i;
  }
  EXPECT_THROW(parse_manifest(text + "\n", "m"), Error);
}

TEST(Manifest, ImpossibleContentIsRefused) {
  struct Case {
    const char* from;
    const char* to;
    ErrorKind kind;
    const char* message;
  };
  constexpr ErrorKind kCorrupt = ErrorKind::corrupt;
  const Case cases[] = {
      {R"("name":"a.safetensors")", R"("name":"../a.safetensors")", kCorrupt, "not a plain file"},
      {R"("name":"a.safetensors")", R"("name":"/etc/passwd")", kCorrupt, "not a plain file"},
      {R"("name":"a.safetensors")", R"("name":"..")", kCorrupt, "not a plain file"},
      {R"("name":"a.safetensors")", R"("name":"")", kCorrupt, "not a plain file"},
      {R"("name":"a.safetensors")", R"("name":"a\u0000b")", kCorrupt, "not a plain file"},
      {R"("name":"a.safetensors")", R"("name":"manifest.json")", kCorrupt, "not a plain file"},
      {R"("name":"a.safetensors")", R"("name":"b.safetensors")", kCorrupt, "twice"},
      {R"("bytes":100)", R"("bytes":1000)", kCorrupt, "2 checksums"},
      {R"("bytes":100)", R"("bytes":-100)", kCorrupt, "2 checksums"},
      {R"("0000000000000001")", R"("1")", kCorrupt, "16 lower-case hex digits"},
      {R"("chunk_bytes": 64)", R"("chunk_bytes": 0)", kCorrupt, "chunk_bytes is 0"},
      {R"("file":1)", R"("file":2)", kCorrupt, "file 2 of 2"},
      {R"("file":1)", R"("file":-1)", kCorrupt, "file -1 of 2"},
      {R"("begin":8,"end":32)", R"("begin":88,"end":112)", kCorrupt, "which has 100"},
      {R"("begin":8,"end":32)", R"("begin":8,"end":36)", kCorrupt, "28 bytes"},
      {R"("begin":8,"end":32)", R"("begin":-8,"end":16)", kCorrupt, "bytes -8 to 16"},
      {R"("offset":[2,0])", R"("offset":[3,0])", kCorrupt, "is not inside tensor"},
      {R"("offset":[2,0])", R"("offset":[1,0])", kCorrupt, "overlap"},
      {R"("offset":[2,0])", R"("offset":[2])", kCorrupt, "is not inside tensor"},
      {R"("name":"whole","dtype":"f32","shape":[2,3])",
       R"("name":"whole","dtype":"f32","shape":[2,4])", kCorrupt, "6 of its 8 elements"},
      {R"("name":"whole","dtype":"f32","shape":[2,3])",
       R"("name":"whole","dtype":"f32","shape":[4611686018427387904,4])", kCorrupt,
       "impossible shape"},
      {R"("name":"whole")", R"("name":"split")", kCorrupt, "twice"},
      {R"("format": "tutti-checkpoint")", R"("format": "other")", kCorrupt, "format"},
      {R"("format_version": 1)", R"("format_version": 3)", ErrorKind::unsupported,
       "format version 3"},
      {R"("format_version": 1)", R"("format_version": 2)", kCorrupt, "'seal' is missing"},
      {R"("step": 3,)", R"("stop": 3,)", kCorrupt, "'step' is missing"},
      {R"("step": 3,)", R"("step": "3",)", kCorrupt, "'step' has the wrong type"},
  };
  const std::string text = format_manifest(example());
  for (const Case& wrong : cases) {
    SCOPED_TRACE(wrong.to);
    const std::string changed = resealed(text, wrong.from, wrong.to);
    EXPECT_TRUE(says(error_of([&] { parse_manifest(changed, "some/manifest"); }), wrong.kind,
                     wrong.message));
  }
}

// docs/formats.md shows the manifest of the checkpoint that is written here.
TEST(Manifest, WritesTheDocumentedExample) {
  const std::string page = read_file(posix_file_system(), TUTTI_SOURCE_DIR "/docs/formats.md");
  const size_t begin = page.find("{\n  \"format\": \"tutti-checkpoint\"");
  const size_t end = page.find("```", begin);
  ASSERT_NE(end, std::string::npos);
  const std::string text = page.substr(begin, end - begin);
  const Manifest documented = parse_manifest(text, "docs/formats.md");
  EXPECT_EQ(format_manifest(documented), text);

  const float weight[4] = {1, 2, 3, 4};
  const bf16 bias[2] = {to_bf16(1), to_bf16(-2)};
  const std::vector<TensorSource> tensors = {{"head.weight", DType::f32, {2, 2}, weight, {}, {}},
                                             {"head.bias", DType::bf16, {2}, bias, {}, {}}};
  MemoryFileSystem files;
  const Written checkpoint = write_checkpoint(files, "run", tensors, documented.state);
  Manifest written = Reader(files, checkpoint.path).manifest();
  written.created = documented.created;
  written.tutti_version = documented.tutti_version;
  EXPECT_EQ(format_manifest(written), text);
}

TEST(Manifest, StepFolderNames) {
  EXPECT_EQ(step_folder_name(120), "step-00000120");
  EXPECT_EQ(step_folder_name(1234567890), "step-1234567890");
  for (const int64_t step : {int64_t{0}, int64_t{99999999}, int64_t{100000000}}) {
    EXPECT_EQ(parse_step_folder_name(step_folder_name(step)), step);
  }
  for (const char* name : {"step-", "step-12", "step-0000001x", "step-000000012", "Step-00000012",
                           "step-00000012.old", "step-99999999999999999999"}) {
    EXPECT_EQ(parse_step_folder_name(name), std::nullopt) << name;
  }
  for (const char* path : {"step-00000120", "step-00000120/", "runs/a/step-00000120//"}) {
    EXPECT_EQ(step_of_path(path), 120) << path;
  }
  for (const char* path : {"", "/", "runs/a/", "step-00000120/.."}) {
    EXPECT_EQ(step_of_path(path), std::nullopt) << path;
  }
}

TEST(Manifest, AnotherModelIsNamedByItsFirstDifference) {
  const Json saved = {{"architecture", "gpt"}, {"attention", {{"heads", 3}, {"kv_heads", 3}}}};
  Json expected = saved;
  check_same_model(saved, expected, "p");
  expected["attention"]["heads"] = 4;
  EXPECT_TRUE(says(error_of([&] { check_same_model(saved, expected, "p"); }), ErrorKind::usage,
                   "'attention.heads' is 3 in the checkpoint and 4 in the recipe"));
  expected = saved;
  expected["rope"] = true;
  EXPECT_TRUE(says(error_of([&] { check_same_model(saved, expected, "p"); }), ErrorKind::usage,
                   "'rope' is absent in the checkpoint"));
  EXPECT_TRUE(says(error_of([&] { check_same_model(expected, saved, "p"); }), ErrorKind::usage,
                   "absent in the recipe"));
}

}  // namespace
}  // namespace tutti::checkpoint
