#include "tutti/telemetry/sinks/mlperf_log.h"

#include <gtest/gtest.h>

#include <limits>

#include "tutti/base/testing/memory_file.h"

namespace tutti::telemetry {
namespace {

// A line of a published result (4.0, NVIDIA, 8 x H100, Llama 2 70B LoRA, result_0.txt).
TEST(MlperfLog, ALineIsThatOfAPublishedLog) {
  const MlperfLine line{MlperfLine::Type::end,
                        "run_stop",
                        Json(0.9233128428459167),
                        Json{{"samples_count", 3072}, {"status", "success"}},
                        "/workspace/ft-llm/custom_callbacks.py",
                        195};
  EXPECT_EQ(format_mlperf_line(line, 1714899369.711),
            R"(:::MLLOG {"namespace": "", "time_ms": 1714899369711, "event_type": "INTERVAL_END", )"
            R"("key": "run_stop", "value": 0.9233128428459167, "metadata": {"file": )"
            R"("/workspace/ft-llm/custom_callbacks.py", "lineno": 195, "samples_count": 3072, )"
            R"("status": "success"}})");
}

TEST(MlperfLog, ValuesAreWrittenAsPythonDoes) {
  const auto value_of = [](const Json& value) {
    MlperfLine line{MlperfLine::Type::point, "k", value, Json::object(), "f", 1};
    const std::string text = format_mlperf_line(line, 0);
    const size_t begin = text.find("\"value\": ") + 9;
    return text.substr(begin, text.find(", \"metadata\"") - begin);
  };
  EXPECT_EQ(value_of(nullptr), "null");
  EXPECT_EQ(value_of(true), "true");
  EXPECT_EQ(value_of("a \"b\""), R"("a \"b\"")");
  EXPECT_EQ(value_of(Json{{"throughput", 2.5}, {"list", Json::array({1, 2})}}),
            R"({"throughput": 2.5, "list": [1, 2]})");
  EXPECT_EQ(value_of(std::numeric_limits<double>::quiet_NaN()), "NaN");
  EXPECT_EQ(value_of(-std::numeric_limits<double>::infinity()), "-Infinity");
}

TEST(MlperfLog, TheFileHoldsTheLinesOfOneRunOnly) {
  MemoryFileSystem files;
  write_file_atomic(files, "run.log", "of an earlier run\n");
  MlperfLogSink sink(files, "run.log");
  sink.write(
      {1.5, MlperfLine{MlperfLine::Type::start, "init_start", nullptr, Json::object(), "f", 7}});
  sink.write({2.0, Message{Level::info, "not for this log"}});
  sink.flush();
  EXPECT_EQ(read_file(files, "run.log"),
            ":::MLLOG {\"namespace\": \"\", \"time_ms\": 1500, \"event_type\": \"INTERVAL_START\", "
            "\"key\": \"init_start\", \"value\": null, \"metadata\": {\"file\": \"f\", \"lineno\": "
            "7}}\n");
}

}  // namespace
}  // namespace tutti::telemetry
