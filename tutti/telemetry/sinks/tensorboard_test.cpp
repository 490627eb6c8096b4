#include "tutti/telemetry/sinks/tensorboard.h"

#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "tutti/base/testing/memory_file.h"

namespace tutti::telemetry {
namespace {

std::string from_hex(std::string_view text) {
  std::string out;
  std::string digits;
  for (const char c : text) {
    if (c == ' ') continue;
    digits += c;
    if (digits.size() == 2) {
      out.push_back(static_cast<char>(std::stoi(digits, nullptr, 16)));
      digits.clear();
    }
  }
  return out;
}

// RFC 3720, appendix B.4, and the usual check value.
TEST(TensorBoard, Crc32cOfKnownVectors) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xff')), 0x62A8AB43U);
  std::string ascending;
  for (char c = 0; c < 32; ++c) ascending += c;
  EXPECT_EQ(crc32c(ascending), 0x46DD794EU);
}

// A record of 24 bytes starts with these twelve in every event file there is.
TEST(TensorBoard, RecordFrameIsTheWorkedExample) {
  const std::string data(24, 'x');
  const std::string record = tfrecord(data);
  ASSERT_EQ(record.size(), 12U + 24U + 4U);
  EXPECT_EQ(record.substr(0, 12), from_hex("18 00 00 00 00 00 00 00 a3 7f 4b 22"));
  EXPECT_EQ(record.substr(12, 24), data);
  uint32_t masked = 0;
  std::memcpy(&masked, record.data() + 36, 4);
  const uint32_t crc = crc32c(data);
  EXPECT_EQ(masked, ((crc >> 15) | (crc << 17)) + 0xa282ead8U);
}

// Encoded by hand from event.proto: 1.0 as double, step 300 as varint ac 02, one value "t" 2.0.
TEST(TensorBoard, ScalarEventIsTheWorkedExample) {
  EXPECT_EQ(tensorboard_scalars(1.0, 300, {{"t", 2.0}}),
            from_hex("09 00 00 00 00 00 00 f0 3f"  // 1: fixed64
                     "10 ac 02"                    // 2: varint
                     "2a 0a"                       // 5: Summary of 10 bytes
                     "0a 08"                       //   1: Value of 8 bytes
                     "0a 01 74"                    //     1: "t"
                     "15 00 00 00 40"));           //     2: 2.0f
}

// Likewise: step 301, status 1.
TEST(TensorBoard, SessionStartIsTheWorkedExample) {
  EXPECT_EQ(tensorboard_session_start(1.0, 301),
            from_hex("09 00 00 00 00 00 00 f0 3f"  // 1: fixed64
                     "10 ad 02"                    // 2: varint
                     "3a 02"                       // 7: SessionLog of 2 bytes
                     "08 01"));                    //   1: START
}

// The records of a file, each frame checked.
std::vector<std::string> records(const std::string& bytes) {
  std::vector<std::string> out;
  size_t at = 0;
  while (at < bytes.size()) {
    uint64_t length = 0;
    std::memcpy(&length, bytes.data() + at, sizeof length);
    const std::string data = bytes.substr(at + 12, length);
    EXPECT_EQ(bytes.substr(at, 16 + length), tfrecord(data));
    out.push_back(data);
    at += 16 + length;
  }
  return out;
}

TEST(TensorBoard, SinkWritesVersionThenScalars) {
  MemoryFileSystem files;
  files.create_directories("run");
  TensorBoardSink sink(files, "run");
  StepDone step;
  step.step = 12;
  step.loss = 3.5;
  step.tokens_per_second = 1000;
  sink.write({1.0, step});
  sink.write({2.0, EvaluationDone{12, 3.25, 100, 0.1}});
  sink.write({2.0, Message{Level::info, "not plotted"}});
  sink.flush();

  const auto entries = files.list("run");
  ASSERT_EQ(entries.size(), 1U);
  EXPECT_EQ(entries[0].name.rfind("events.out.tfevents.", 0), 0U);
  const auto events = records(read_file(files, "run/" + entries[0].name));
  ASSERT_EQ(events.size(), 3U);
  EXPECT_EQ(events[0].substr(9), from_hex("1a 0d") + "brain.Event:2");
  EXPECT_EQ(events[1], tensorboard_scalars(1.0, 12,
                                           {{"loss/train", 3.5},
                                            {"throughput/tokens_per_second", 1000},
                                            {"throughput/mfu", 0},
                                            {"optimizer/learning_rate", 0},
                                            {"optimizer/gradient_norm", 0}}));
  EXPECT_EQ(events[2], tensorboard_scalars(2.0, 12, {{"loss/validation", 3.25}}));

  const TensorBoardSink resumed(files, "run");  // within the same second: a file of its own
  EXPECT_EQ(files.list("run").size(), 2U);
}

// Readers stop at half a record: what was given again is in another file, and only one of them.
TEST(TensorBoard, AFullDiskCostsOneFile) {
  MemoryFileSystem files;
  files.create_directories("run");
  TensorBoardSink sink(files, "run");
  const std::string first = join_path("run", files.list("run")[0].name);
  files.set_capacity(files.size_bytes(first) + 9);
  StepDone step;
  step.step = 3;
  for (int attempt = 0; attempt < 5; ++attempt) EXPECT_THROW(sink.write({1.0, step}), Error);
  EXPECT_EQ(files.list("run").size(), 1U);
  files.clear_faults();
  sink.write({1.0, step});
  const auto entries = files.list("run");
  ASSERT_EQ(entries.size(), 2U);
  const std::string second = join_path("run", entries[1].name);
  EXPECT_EQ(records(read_file(files, second)).size(), 2U);
}

// A killed run had continued beyond its last checkpoint: its records of those steps are retracted.
TEST(TensorBoard, ResumedRunsRetractRepeatedSteps) {
  MemoryFileSystem files;
  files.create_directories("run");
  TensorBoardSink sink(files, "run");
  RunStarted started;
  started.first_step = 40;
  sink.write({1.0, started});
  const auto events = records(read_file(files, "run/" + files.list("run").front().name));
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[1], tensorboard_session_start(1.0, 41));
}

}  // namespace
}  // namespace tutti::telemetry
