#include "tutti/train/step/state_fetch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "tutti/base/error.h"
#include "tutti/train/session/run_state.h"
#include "tutti/train/testing/session_fixture.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train {
namespace {

constexpr TrainerOptions kAsOnDevice{.enqueue_steps = true};

std::string bytes_of(const checkpoint::TensorSource& tensor) {
  std::string out;
  const auto append = [&](const void* data, int64_t bytes) {
    out.append(static_cast<const char*>(data), static_cast<size_t>(bytes));
  };
  if (tensor.stream) {
    tensor.stream(append);
  } else {
    append(tensor.data, checkpoint::tensor_bytes(tensor));
  }
  return out;
}

void expect_state(StateFetch& fetch, const Trainer& trainer) {
  const std::vector<checkpoint::TensorSource> fetched = fetch.tensors();
  const std::vector<checkpoint::TensorSource> there = checkpoint_tensors(trainer);
  ASSERT_EQ(fetched.size(), there.size());
  for (size_t i = 0; i < there.size(); ++i) {
    EXPECT_EQ(fetched[i].name, there[i].name);
    EXPECT_TRUE(bytes_of(fetched[i]) == bytes_of(there[i])) << there[i].name;
  }
}

// Every byte once over the link: masters and moments of each parameter, where they are not on the
// host already.
TEST(StateFetch, BringsEveryByteOnce) {
  struct Case {
    spec::Precision precision;
    spec::Master master;
    bool offload;
    int64_t bytes;  // per parameter
  };
  for (const Case& one : {Case{spec::Precision::f32, spec::Master::f32, false, 12},
                          Case{spec::Precision::bf16, spec::Master::f32, false, 12},
                          Case{spec::Precision::bf16, spec::Master::none, false, 10},
                          Case{spec::Precision::bf16, spec::Master::f32, true, 0},
                          Case{spec::Precision::bf16, spec::Master::none, true, 2}}) {
    spec::Recipe recipe = testing::llama_recipe();
    recipe.precision = one.precision;
    recipe.optimizer.master = one.master;
    recipe.optimizer.stochastic_rounding = one.master == spec::Master::none;
    recipe.offload.optimizer = one.offload;
    Trainer trainer(recipe, {}, kAsOnDevice);
    trainer.initialize();
    testing::RandomBatches batches(recipe, 3);
    trainer.step(batches.source(), 1e-2, 1);
    StateFetch fetch(trainer, 100);  // no multiple of a tensor's bytes
    expect_state(fetch, trainer);
    EXPECT_EQ(fetch.fetched_bytes(), one.bytes * spec::param_table(recipe.model).count());
    trainer.step(batches.source(), 1e-2, 2);
    expect_state(fetch, trainer);
  }
}

// A reader that cannot keep the data stops in the middle of a tensor.
TEST(StateFetch, RestartsAfterAFailedReader) {
  const spec::Recipe recipe = testing::gpt_recipe();
  Trainer trainer(recipe, {}, kAsOnDevice);
  trainer.initialize();
  StateFetch fetch(trainer, 64);
  const auto full = [](const void*, int64_t) { fail(ErrorKind::no_space, "full"); };
  EXPECT_THROW(fetch.tensors().front().stream(full), Error);
  expect_state(fetch, trainer);
}

class FetchedCopies : public testing::SessionTest {};

// A run that ends without a checkpoint resumes from what was fetched; between copies its steps run
// ahead.
TEST_F(FetchedCopies, ARunGoesOnFromThemToTheBit) {
  recipe_.checkpoint.every_steps = 0;
  recipe_.train.steps = 11;
  trainer_ = kAsOnDevice;
  run("whole");
  const std::vector<double> whole = losses();
  SessionOptions options;
  options.run_folder = "run";
  options.measure_peak = false;
  options.copy_every = 3;
  options.memory_root = "memory";
  options.stop_after_step = 8;
  options.trainer = kAsOnDevice;
  const auto run_copied = [&](FileSystem& files) {
    events_.clear();
    telemetry::Telemetry telemetry;
    telemetry.add(std::make_unique<testing::Collector>(events_));
    run_session(recipe_, options, files, telemetry);
  };
  const auto was_logged = [&](const std::string& text) {
    const auto all = events<telemetry::Message>();
    return std::any_of(all.begin(), all.end(), [&](const telemetry::Message& one) {
      return one.text.find(text) != std::string::npos;
    });
  };
  run_copied(files_);
  EXPECT_EQ(losses(), std::vector<double>(whole.begin(), whole.begin() + 8));
  EXPECT_TRUE(was_logged("over the link of its device"));
  // The power fails before the checkpoint at the end.
  int64_t saving = 0;
  while (files_.operation(saving).find("run/checkpoints/") == std::string::npos) ++saving;
  constexpr uint64_t kNothingIsLost = 1;
  const auto disk = files_.crash_after(saving, kNothingIsLost);
  options.stop_after_step = 0;
  run_copied(*disk);
  EXPECT_TRUE(was_logged("resuming at step 6 of 11, from the memory of its hosts"));
  EXPECT_EQ(losses(), std::vector<double>(whole.begin() + 6, whole.end()));
}

}  // namespace
}  // namespace tutti::train
