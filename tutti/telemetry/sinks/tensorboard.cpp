#include "tutti/telemetry/sinks/tensorboard.h"

#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/telemetry/sinks/reopened_file.h"

namespace tutti::telemetry {
namespace {

static_assert(std::endian::native == std::endian::little,
              "fields are copied as they are in memory");

constexpr std::array<uint32_t, 256> kCrcTable = [] {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1U) != 0 ? 0x82F63B78U : 0U);
    table[i] = crc;
  }
  return table;
}();

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_crc(std::string& out, std::string_view bytes) {
  put(out, std::rotr(crc32c(bytes), 15) + 0xa282ead8U);
}

// Protobuf: a key is field << 3 | wire type; integers are base-128 varints.
enum WireType : uint64_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 128; value >>= 7) out.push_back(static_cast<char>((value & 127) | 128));
  out.push_back(static_cast<char>(value));
}
void put_key(std::string& out, uint64_t field, WireType type) {
  put_varint(out, field << 3 | type);
}
void put_bytes(std::string& out, uint64_t field, std::string_view value) {
  put_key(out, field, bytes);
  put_varint(out, value.size());
  out.append(value);
}
void put_double(std::string& out, uint64_t field, double value) {
  put_key(out, field, fixed64);
  put(out, value);
}

}  // namespace

uint32_t crc32c(std::string_view bytes) {
  uint32_t crc = ~0U;
  for (const char c : bytes) {
    crc = (crc >> 8) ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xffU];
  }
  return ~crc;
}

std::string tfrecord(std::string_view data) {
  std::string out;
  put(out, static_cast<uint64_t>(data.size()));
  put_crc(out, std::string(out));
  out.append(data);
  put_crc(out, data);
  return out;
}

std::string tensorboard_scalars(double wall_seconds, int64_t step,
                                const std::vector<Scalar>& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    std::string entry;
    put_bytes(entry, 1, tag);
    put_key(entry, 2, fixed32);
    put(entry, static_cast<float>(value));
    put_bytes(summary, 1, entry);
  }
  std::string event;
  put_double(event, 1, wall_seconds);
  put_key(event, 2, varint);
  put_varint(event, static_cast<uint64_t>(step));
  put_bytes(event, 5, summary);
  return event;
}

std::string tensorboard_session_start(double wall_seconds, int64_t step) {
  std::string log;
  put_key(log, 1, varint);
  put_varint(log, 1);
  std::string event;
  put_double(event, 1, wall_seconds);
  put_key(event, 2, varint);
  put_varint(event, static_cast<uint64_t>(step));
  put_bytes(event, 7, log);
  return event;
}

TensorBoardSink::TensorBoardSink(FileSystem& files, const std::string& folder)
    : files_(files), folder_(folder) {
  open();
}

void TensorBoardSink::flush() {
  with_open_file(
      file_, [&] { open(); }, [&] { file_->sync(); });
}

void TensorBoardSink::write(const Event& event) {
  with_open_file(
      file_, [&] { open(); }, [&] { write_records(event); });
}

void TensorBoardSink::open() {
  const double now = wall_seconds();
  const std::string prefix = fmt::format("events.out.tfevents.{:010}.{}", static_cast<int64_t>(now),
                                         describe_machine().host);
  std::string path;
  int number = 0;
  do {
    path = join_path(folder_, fmt::format("{}.{}", prefix, number++));
  } while (files_.exists(path));
  file_ = files_.create(path);
  std::string version;
  put_double(version, 1, now);
  put_bytes(version, 3, "brain.Event:2");
  try {
    append(tfrecord(version));
  } catch (const Error&) {
    file_.reset();
    files_.remove_file(path);  // else a full disk would collect one per attempt
    throw;
  }
}

void TensorBoardSink::write_records(const Event& event) {
  if (const auto* step = std::get_if<StepDone>(&event.body)) {
    last_step_ = step->step;
    append(tfrecord(tensorboard_scalars(event.wall_seconds, step->step,
                                        {{"loss/train", step->loss},
                                         {"throughput/tokens_per_second", step->tokens_per_second},
                                         {"throughput/mfu", step->mfu},
                                         {"optimizer/learning_rate", step->learning_rate},
                                         {"optimizer/gradient_norm", step->gradient_norm}})));
    if (step->parts) {
      append(tfrecord(tensorboard_scalars(event.wall_seconds, step->step,
                                          {{"loss/cross_entropy", step->parts->cross_entropy},
                                           {"loss/divergence", step->parts->divergence}})));
    }
    if (step->routing) {
      append(tfrecord(
          tensorboard_scalars(event.wall_seconds, step->step,
                              {{"routing/balance_loss", step->routing->balance_loss},
                               {"routing/z_loss", step->routing->z_loss},
                               {"routing/load_max_over_mean", step->routing->load_max_over_mean},
                               {"routing/dropped_share", step->routing->dropped_share}})));
    }
  } else if (const auto* started = std::get_if<RunStarted>(&event.body)) {
    append(tfrecord(tensorboard_session_start(event.wall_seconds, started->first_step + 1)));
  } else if (const auto* evaluation = std::get_if<EvaluationDone>(&event.body)) {
    append(tfrecord(tensorboard_scalars(event.wall_seconds, evaluation->step,
                                        {{"loss/validation", evaluation->loss}})));
  } else if (const auto* gpu = std::get_if<GpuMeasured>(&event.body)) {
    std::vector<std::string> tags;
    std::vector<double> values;
    const auto add = [&](const char* name, const std::optional<double>& value) {
      if (!value) return;
      tags.push_back(fmt::format("gpu/{}/{}", gpu->gpu, name));
      values.push_back(*value);
    };
    add("power_watts", gpu->power_watts);
    add("clock_hertz", gpu->clock_hertz);
    add("temperature_celsius", gpu->temperature_celsius);
    add("memory_used_bytes", gpu->memory_used_bytes);
    std::vector<Scalar> scalars;
    for (size_t i = 0; i < tags.size(); ++i) scalars.emplace_back(tags[i], values[i]);
    if (!scalars.empty()) {
      append(tfrecord(tensorboard_scalars(event.wall_seconds, last_step_, scalars)));
    }
  }
}

}  // namespace tutti::telemetry
