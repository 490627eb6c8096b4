// Whole runs on an in-memory disk, for the tests of sessions.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/data/corpus/writer.h"
#include "tutti/train/session/run_folder.h"
#include "tutti/train/session/session.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train::testing {

// Keeps events for the test to look at.
class Collector final : public telemetry::Sink {
 public:
  explicit Collector(std::vector<telemetry::Event>& events) : events_(events) {}
  void write(const telemetry::Event& event) override { events_.push_back(event); }

 private:
  std::vector<telemetry::Event>& events_;
};

// A text a small model can learn: each token follows from the one before.
inline void write_corpus(FileSystem& files, const std::string& prefix, int64_t tokens) {
  data::CorpusWriter writer(files, prefix, DType::u16);
  std::vector<int32_t> text;
  for (int64_t i = 0, token = 1; i < tokens; ++i) {
    text.push_back(static_cast<int32_t>(token));
    token = (token * 5 + i % 3) % 101;
  }
  writer.append(text);
  writer.end_document();
  writer.finish();
  writer.commit();
}

// Documents of 1 to 40 tokens, and an empty one.
inline void write_documents(FileSystem& files, const std::string& prefix, int64_t documents,
                            int64_t add) {
  data::CorpusWriter writer(files, prefix, DType::u16);
  for (int64_t d = 0; d < documents; ++d) {
    std::vector<int32_t> text;
    const int64_t length = (d * 17 + add) % 41;
    for (int64_t i = 0; i < length; ++i) {
      text.push_back(static_cast<int32_t>((d * 5 + i * 7 + add) % 101));
    }
    writer.append(text);
    writer.end_document();
  }
  writer.finish();
  writer.commit();
}

class SessionTest : public ::testing::Test {
 protected:
  SessionTest() {
    write_corpus(files_, "train", 2000);
    write_corpus(files_, "validation", 150);
    recipe_ = testing::gpt_recipe();
    recipe_.data = {"train", "validation"};
    recipe_.evaluate.every_steps = 10;
    recipe_.checkpoint.every_steps = 5;
  }

  Summary run(const std::string& folder, int64_t stop_after_step = 0) {
    telemetry::Telemetry telemetry;
    telemetry.add(std::make_unique<Collector>(events_));
    SessionOptions options;
    options.run_folder = folder;
    options.measure_peak = false;
    options.stop_after_step = stop_after_step;
    options.trainer = trainer_;
    return run_session(recipe_, options, files_, telemetry);
  }

  // All events of one kind, oldest first.
  template <typename T>
  std::vector<T> events() const {
    std::vector<T> out;
    for (const telemetry::Event& event : events_) {
      if (const T* body = std::get_if<T>(&event.body)) out.push_back(*body);
    }
    return out;
  }
  std::vector<double> losses() const {
    std::vector<double> out;
    for (const auto& step : events<telemetry::StepDone>()) out.push_back(step.loss);
    return out;
  }
  std::vector<float> parameters(const std::string& folder) {
    return load_run(files_, folder, false).master;
  }

  // Two sessions, the first stopped after a step, compute what one does.
  void expect_resume_to_the_bit(const std::string& name, int64_t stop_after_step) {
    events_.clear();
    run(name);
    const std::vector<double> whole = losses();
    events_.clear();
    run(name + "-parts", stop_after_step);
    run(name + "-parts");
    EXPECT_EQ(losses(), whole);
    EXPECT_EQ(parameters(name + "-parts"), parameters(name));
  }

  std::string error_of_load(const std::string& folder) {
    try {
      load_run(files_, folder, false);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  }

  MemoryFileSystem files_;
  spec::Recipe recipe_;
  TrainerOptions trainer_;
  std::vector<telemetry::Event> events_;
};

}  // namespace tutti::train::testing
