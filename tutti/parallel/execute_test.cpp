#include "tutti/parallel/execute.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <vector>

#include "tutti/comm/thread_world.h"

namespace tutti::parallel {
namespace {

using spec::Mesh;
using spec::Pipeline;

constexpr int64_t kWidth = 3;

float activation_of(int64_t micro, int64_t virtual_stage) {
  return static_cast<float>(100 * micro + virtual_stage);
}
float gradient_of(int64_t micro, int64_t virtual_stage) {
  return -activation_of(micro, virtual_stage) - 1;
}

// Says of every micro-batch which stage it comes from, and looks whether what it gets says so too.
class Labels : public Passes {
 public:
  Labels(const spec::Mesh& mesh, int64_t stage, int64_t chunk, bool delays, int64_t& room)
      : mesh_(mesh), number_(chunk * mesh.pp + stage), delays_(delays), room_(room) {}

  bool has_room() const override { return room_ > 0; }
  void enter(int64_t micro) override {
    EXPECT_TRUE(inputs_.emplace(micro, std::vector<float>(kWidth, -0.5F)).second);
    --room_;
  }
  void leave(int64_t micro) override {
    EXPECT_EQ(inputs_.erase(micro), 1U);
    ++room_;
  }
  engine::Matrix input(int64_t micro) override {
    return engine::matrix(inputs_.at(micro).data(), DType::f32, 1, kWidth);
  }
  void forward(engine::Stream& /*stream*/, int64_t micro, engine::Matrix out) override {
    if (number_ > 0) expect(input(micro), activation_of(micro, number_ - 1));
    EXPECT_EQ(bool(out), number_ < mesh_.virtual_stages() - 1);
    if (out) fill(out, activation_of(micro, number_));
    ++forwards;
  }
  void evaluate(engine::Stream& stream, int64_t micro, engine::Matrix out) override {
    forward(stream, micro, out);
  }
  void backward(engine::Stream& /*stream*/, int64_t micro, engine::Matrix d_residual) override {
    if (number_ < mesh_.virtual_stages() - 1) expect(d_residual, gradient_of(micro, number_ + 1));
    fill(d_residual, gradient_of(micro, number_));
    ++backwards;
  }
  bool delays_weights() const override { return delays_; }
  void weight_gradient(engine::Stream& /*stream*/, int64_t micro) override {
    EXPECT_EQ(inputs_.count(micro), 1U);
    ++weights;
  }

  int64_t forwards = 0, backwards = 0, weights = 0;

 private:
  static void fill(const engine::Matrix& to, float value) {
    std::fill_n(to.as<float>(), kWidth, value);
  }
  void expect(const engine::Matrix& found, float value) const {
    for (int64_t i = 0; i < kWidth; ++i) EXPECT_EQ(found.as<float>()[i], value) << number_;
  }

  spec::Mesh mesh_;
  int64_t number_;
  bool delays_;
  int64_t& room_;
  std::map<int64_t, std::vector<float>> inputs_;
};

void run_labels(const Mesh& mesh, int64_t micro_batches) {
  spec::Schedule schedule;
  schedule.mesh = mesh;
  schedule.micro_batches = micro_batches;
  comm::run_threads(mesh, [&](comm::World& world, engine::Stream& stream) {
    const Ranks ranks = ranks_of(world, 1);
    const int64_t stage = ranks.at.pp;
    const int64_t slots = spec::peak_in_flight(mesh, micro_batches, stage);
    int64_t room = slots;
    const bool delays = spec::peak_delayed(mesh, micro_batches, stage) > 0;
    std::vector<std::unique_ptr<Labels>> labels;
    std::vector<Passes*> chunks;
    for (int64_t chunk = 0; chunk < mesh.vpp; ++chunk) {
      labels.push_back(std::make_unique<Labels>(mesh, stage, chunk, delays, room));
      chunks.push_back(labels.back().get());
    }
    float memory[4][kWidth] = {};
    Boundary boundary = {ranks.pipeline, ranks.pipeline_gradients};
    for (size_t i = 0; i < 2; ++i) {
      boundary.send[i] = engine::matrix(memory[i], DType::f32, 1, kWidth);
      boundary.d_residual[i] = engine::matrix(memory[2 + i], DType::f32, 1, kWidth);
    }
    Executor executor(mesh, stage, spec::step_actions(schedule, stage, 1), chunks, boundary);
    const auto nothing = [](int64_t /*micro*/) {};
    executor.evaluate(stream, 3, nothing, nothing);
    for (int step = 0; step < 3; ++step) {
      executor.run(stream, {.load = nothing});
      executor.evaluate(stream, 2, nothing, nothing);
    }
    EXPECT_EQ(room, slots);
    for (const auto& one : labels) {
      EXPECT_EQ(one->forwards, 3 * micro_batches + 9);
      EXPECT_EQ(one->backwards, 3 * micro_batches);
      EXPECT_EQ(one->weights, delays ? 3 * micro_batches : 0);
    }
  });
}

// Every schedule ends, and every pass gets what it asks for, with no more room than the memory map
// gives.
TEST(Executor, EveryPassGetsItsOwnMicroBatch) {
  for (const int64_t p : {1, 2, 3, 5}) {
    for (const int64_t m : {1, 2, 7, 12}) {
      for (const Pipeline kind : {Pipeline::one_f_one_b, Pipeline::zero_bubble, Pipeline::gpipe}) {
        SCOPED_TRACE(
            fmt::format("pp {} micro-batches {} schedule {}", p, m, static_cast<int>(kind)));
        run_labels({.pp = p, .pipeline = kind}, m);
      }
    }
    for (const int64_t v : {2, 3}) {
      if (p == 1) continue;
      SCOPED_TRACE(fmt::format("pp {} vpp {}", p, v));
      run_labels({.pp = p, .vpp = v}, p);
      run_labels({.pp = p, .vpp = v}, 4 * p);
    }
  }
}

TEST(Executor, TellsWhatItDoes) {
  const Mesh mesh{.pp = 2};
  spec::Schedule schedule;
  schedule.mesh = mesh;
  schedule.micro_batches = 3;
  comm::run_threads(mesh, [&](comm::World& world, engine::Stream& stream) {
    const Ranks ranks = ranks_of(world, 1);
    int64_t room = 2;
    Labels labels(mesh, ranks.at.pp, 0, false, room);
    float memory[4][kWidth] = {};
    Boundary boundary = {ranks.pipeline, ranks.pipeline_gradients};
    for (size_t i = 0; i < 2; ++i) {
      boundary.send[i] = engine::matrix(memory[i], DType::f32, 1, kWidth);
      boundary.d_residual[i] = engine::matrix(memory[2 + i], DType::f32, 1, kWidth);
    }
    const std::vector<spec::Action> actions = spec::step_actions(schedule, ranks.at.pp, 1);
    Executor executor(mesh, ranks.at.pp, actions, {&labels}, boundary);
    std::vector<spec::Action> told;
    executor.run(stream, {.load = [](int64_t /*micro*/) {},
                          .enter = [&](const spec::Action& action) { told.push_back(action); }});
    EXPECT_EQ(told, actions);
  });
}

}  // namespace
}  // namespace tutti::parallel
