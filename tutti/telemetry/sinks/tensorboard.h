// A TensorBoard event file, written by hand: two formats of a few lines each.
//
// TFRecord framing (tensorflow/core/lib/io/record_writer.h): per record
//   u64 length | u32 masked crc of the 8 length bytes | data | u32 masked crc of data
// little-endian, where masked(crc) = rotate_right(crc, 15) + 0xa282ead8 and crc is CRC-32C.
//
// Each record is a protobuf Event (tensorflow/core/util/event.proto), of which these fields are
// written:
//   1 wall_time: double   2 step: int64   3 file_version: string   5 summary: Summary
//   7 session_log: SessionLog
//   Summary: 1 value (repeated): Value    Value: 1 tag: string   2 simple_value: float
//   SessionLog: 1 status: enum, 1 for START
// The first record of a file has file_version "brain.Event:2".
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/telemetry/sink.h"

namespace tutti::telemetry {

uint32_t crc32c(std::string_view bytes);  // Castagnoli, as in iSCSI (RFC 3720)
std::string tfrecord(std::string_view data);

using Scalar = std::pair<std::string_view, double>;  // tag, value
std::string tensorboard_scalars(double wall_seconds, int64_t step,
                                const std::vector<Scalar>& scalars);
// Readers forget what earlier files of the folder say of `step` and later ones.
std::string tensorboard_session_start(double wall_seconds, int64_t step);

// Writes loss/train, loss/validation, throughput/tokens_per_second, throughput/mfu,
// optimizer/learning_rate and optimizer/gradient_norm, and of GPUs gpu/<address>/power_watts,
// clock_hertz, temperature_celsius and memory_used_bytes at the last step, to a new file
// `folder`/events.out.tfevents.<seconds>.<host>.<n>. TensorBoard joins the files of a folder, so a
// resumed run adds one; it starts with a session log, so that steps that are done again are shown
// once. A file that could not be written is left, since readers stop at half a record: the next
// event begins another one.
class TensorBoardSink final : public Sink {
 public:
  TensorBoardSink(FileSystem& files, const std::string& folder);
  void write(const Event& event) override;
  void flush() override;

 private:
  void open();
  void write_records(const Event& event);
  void append(const std::string& record) { file_->append(record.data(), record.size()); }

  FileSystem& files_;
  const std::string folder_;
  std::unique_ptr<WritableFile> file_;  // null after an error
  int64_t last_step_ = 0;
};

}  // namespace tutti::telemetry
