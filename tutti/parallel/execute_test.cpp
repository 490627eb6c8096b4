#include "tutti/parallel/execute.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "tutti/comm/world/thread_world.h"
#include "tutti/parallel/pipeline_messages.h"
#include "tutti/parallel/ranks.h"

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

// Marks every micro-batch with the stage that it comes from, and checks the marks of what it gets.
class Labels : public Inbox {
 public:
  Labels(const spec::Mesh& mesh, int64_t number, int64_t& room)
      : mesh_(mesh), number_(number), room_(room) {}

  bool has_room() const override { return room_ > 0; }
  void enter(int64_t micro) override {
    EXPECT_TRUE(inputs_.emplace(micro, std::vector<float>(kWidth, -0.5F)).second);
    --room_;
  }
  engine::Matrix input(int64_t micro) override {
    return engine::matrix(inputs_.at(micro).data(), DType::f32, 1, kWidth);
  }

  bool is_last() const { return number_ == mesh_.virtual_stages() - 1; }
  void leave(int64_t micro) {
    EXPECT_EQ(inputs_.erase(micro), 1U);
    ++room_;
  }
  void forward(int64_t micro, engine::Matrix out) {
    if (number_ > 0) expect(input(micro), activation_of(micro, number_ - 1));
    if (out) fill(out, activation_of(micro, number_));
    ++forwards;
  }
  void backward(int64_t micro, engine::Matrix d_residual) {
    if (!is_last()) expect(d_residual, gradient_of(micro, number_ + 1));
    fill(d_residual, gradient_of(micro, number_));
    ++backwards;
  }
  void weight_gradient(int64_t micro) {
    EXPECT_EQ(inputs_.count(micro), 1U);
    ++weights;
    leave(micro);
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
  int64_t& room_;
  std::map<int64_t, std::vector<float>> inputs_;
};

// The virtual stages of one rank, whose passes only look at labels.
class LabelledRank {
 public:
  LabelledRank(const Mesh& mesh, comm::World& world, int64_t slots)
      : ranks_(ranks_of(world, 1)), room_(slots) {
    const int64_t stage = ranks_.at.pp;
    std::vector<Inbox*> chunks;
    for (int64_t chunk = 0; chunk < mesh.vpp; ++chunk) {
      labels_.push_back(std::make_unique<Labels>(mesh, chunk * mesh.pp + stage, room_));
      chunks.push_back(labels_.back().get());
    }
    Boundary boundary = {ranks_.pipeline, ranks_.pipeline_gradients};
    for (size_t i = 0; i < 2; ++i) {
      boundary.send[i] = engine::matrix(memory_[i], DType::f32, 1, kWidth);
      boundary.d_residual[i] = engine::matrix(memory_[2 + i], DType::f32, 1, kWidth);
    }
    pipeline_ = std::make_unique<PipelineMessages>(mesh, stage, std::move(chunks), boundary);
    handle_messages(executor, *pipeline_);
    using Kind = spec::ActionKind;
    const auto nothing = [](engine::Stream& /*stream*/, const spec::Action& /*action*/) {};
    for (const Kind kind : {Kind::load, Kind::norm, Kind::update}) executor.handle(kind, nothing);
    executor.handle(Kind::forward, [this](engine::Stream& stream, const spec::Action& action) {
      Labels& one = of(action);
      one.forward(action.micro, one.is_last() ? engine::Matrix{} : pipeline_->output(stream));
      if (evaluating_) one.leave(action.micro);
    });
    executor.handle(Kind::backward, [this](engine::Stream& stream, const spec::Action& action) {
      pipeline_->await_gradient(stream);
      of(action).backward(action.micro, pipeline_->gradient());
    });
    executor.handle(Kind::weight_gradient,
                    [this](engine::Stream& /*stream*/, const spec::Action& action) {
                      of(action).weight_gradient(action.micro);
                      if (ranks_.at.pp == 0 && action.chunk == 0) pipeline_->drop_gradient();
                    });
  }

  void run(engine::Stream& stream, const std::vector<spec::Action>& actions, bool evaluating) {
    evaluating_ = evaluating;
    pipeline_->begin(actions);
    executor.run(stream, actions);
    pipeline_->end(stream);
  }

  int64_t stage() const { return ranks_.at.pp; }
  int64_t room() const { return room_; }
  const std::vector<std::unique_ptr<Labels>>& labels() const { return labels_; }

  Executor executor;

 private:
  Labels& of(const spec::Action& action) { return *labels_[static_cast<size_t>(action.chunk)]; }

  Ranks ranks_;
  int64_t room_;
  std::vector<std::unique_ptr<Labels>> labels_;
  float memory_[4][kWidth] = {};
  std::unique_ptr<PipelineMessages> pipeline_;
  bool evaluating_ = false;
};

// Forward passes of micro-batches one after the other.
std::vector<spec::Action> evaluation(const Mesh& mesh, int64_t stage, int64_t micro_batches) {
  using Kind = spec::ActionKind;
  std::vector<spec::Action> out;
  for (int64_t micro = 0; micro < micro_batches; ++micro) {
    for (int64_t chunk = 0; chunk < mesh.vpp; ++chunk) {
      const int64_t number = chunk * mesh.pp + stage;
      if (number > 0) out.push_back({Kind::receive, micro, chunk});
      out.push_back({Kind::forward, micro, chunk});
      if (number < mesh.virtual_stages() - 1) out.push_back({Kind::send, micro, chunk});
    }
  }
  return out;
}

void run_labels(const Mesh& mesh, int64_t micro_batches) {
  spec::Schedule schedule;
  schedule.mesh = mesh;
  schedule.micro_batches = micro_batches;
  comm::run_threads(mesh, [&](comm::World& world, engine::Stream& stream) {
    const int64_t at = spec::coordinates(mesh, world.rank()).pp;
    const int64_t slots = spec::peak_in_flight(mesh, micro_batches, at);
    LabelledRank rank(mesh, world, slots);
    const std::vector<spec::Action> step = spec::step_actions(schedule, rank.stage(), 1);
    rank.run(stream, evaluation(mesh, rank.stage(), 3), true);
    for (int i = 0; i < 3; ++i) {
      rank.run(stream, step, false);
      rank.run(stream, evaluation(mesh, rank.stage(), 2), true);
    }
    EXPECT_EQ(rank.room(), slots);
    for (const auto& one : rank.labels()) {
      EXPECT_EQ(one->forwards, 3 * micro_batches + 9);
      EXPECT_EQ(one->backwards, 3 * micro_batches);
      EXPECT_EQ(one->weights, 3 * micro_batches);
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

TEST(Executor, ShowsListenersEveryActionInOrder) {
  const Mesh mesh{.pp = 2};
  spec::Schedule schedule;
  schedule.mesh = mesh;
  schedule.micro_batches = 3;
  comm::run_threads(mesh, [&](comm::World& world, engine::Stream& stream) {
    LabelledRank rank(mesh, world, 2);
    const std::vector<spec::Action> actions = spec::step_actions(schedule, rank.stage(), 1);
    std::vector<spec::Action> seen;
    rank.executor.listen(
        [&](engine::Stream& /*stream*/, const spec::Action& action) { seen.push_back(action); });
    rank.run(stream, actions, false);
    EXPECT_EQ(seen, actions);
  });
}

TEST(ExecutorDeathTest, WantsOneHandlerForEveryAction) {
  const auto nothing = [](engine::Stream& /*stream*/, const spec::Action& /*action*/) {};
  Executor executor;
  executor.handle(spec::ActionKind::load, nothing);
  const std::vector<spec::Action> actions = {{spec::ActionKind::load},
                                             {spec::ActionKind::evaluate}};
  executor.check(std::span(actions).first(1));
  EXPECT_DEATH(executor.check(actions), "nothing handles evaluate");
  EXPECT_DEATH(executor.handle(spec::ActionKind::load, nothing), "load has a handler already");
}

}  // namespace
}  // namespace tutti::parallel
