// Schedules on devices whose calls start in the order in which they were launched
// (comm/nccl/group.h): the calls of each stage's executor are written down, and played by the rules
// that hold there.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tutti/comm/group.h"
#include "tutti/parallel/execute.h"
#include "tutti/parallel/pipeline_messages.h"
#include "tutti/spec/schedule/step_list.h"

namespace tutti::parallel {
namespace {

using spec::Mesh;
using spec::Pipeline;

// What a stage's host asks for, one after the other.
struct Step {
  enum Kind { send, receive, wait } kind = wait;
  int group = 0;
  int peer = 0;
  size_t number =
      0;  // among the sends to a peer, or receives from it; of a wait: which step it is for
};

// Records calls, all of which count as done, so that queries never wait.
class NotedGroup : public comm::Group {
 public:
  NotedGroup(comm::GroupInfo info, int number, bool in_order, std::vector<Step>& steps)
      : Group(std::move(info)), number_(number), in_order_(in_order), steps_(steps) {}
  std::vector<comm::RankActivity> activity() const override { return {}; }
  void fail_with(const std::string&) override {}
  bool starts_in_order() const override { return in_order_; }

 protected:
  comm::Ticket enqueue(engine::Stream&, const comm::Call& call) override {
    const bool sends = call.shape.kind == comm::CallKind::send;
    const size_t number = counts_[{sends, call.shape.peer}]++;
    steps_.push_back({sends ? Step::send : Step::receive, number_, call.shape.peer, number});
    return {this, 0, steps_.size() - 1};
  }
  bool done(int32_t, uint64_t) const override { return true; }
  void wait(engine::Stream&, int32_t, uint64_t number) override {
    steps_.push_back({Step::wait, number_, 0, number});
  }

 private:
  int number_;
  bool in_order_;
  std::vector<Step>& steps_;
  std::map<std::pair<bool, int>, size_t> counts_;
};

// Micro-batches that only take room.
class Room : public Inbox {
 public:
  Room(int64_t& room, float* memory) : room_(room), memory_(memory) {}
  bool has_room() const override { return room_ > 0; }
  void enter(int64_t) override {
    EXPECT_GT(room_, 0);
    --room_;
  }
  engine::Matrix input(int64_t) override { return engine::matrix(memory_, DType::f32, 1, 1); }

 private:
  int64_t& room_;
  float* memory_;
};

// Two layers for each virtual stage.
spec::Recipe recipe_of(const Mesh& mesh, int64_t micro_batches) {
  spec::Recipe recipe;
  recipe.model.layers = 2 * mesh.virtual_stages();
  recipe.model.hidden = 8;
  recipe.model.heads = recipe.model.kv_heads = 2;
  recipe.model.head_dim = 4;
  recipe.model.ffn = 32;
  recipe.model.vocabulary = 16;
  recipe.model.context = 4;
  recipe.parallel = mesh;
  recipe.batch = {.global = micro_batches * mesh.dp, .micro = 1, .sequence = 4};
  return recipe;
}

// The last action of each chunk's pass over a micro-batch, by its index in the list.
std::set<size_t> ends_of(const std::vector<spec::Action>& actions, spec::ActionKind kind) {
  std::map<std::pair<int64_t, int64_t>, size_t> last;
  for (size_t i = 0; i < actions.size(); ++i) {
    if (actions[i].kind == kind) last[{actions[i].micro, actions[i].chunk}] = i;
  }
  std::set<size_t> ends;
  for (const auto& [pass, end] : last) ends.insert(end);
  return ends;
}

// Of two steps with an evaluation between them, as a rank of pipeline stage `stage` executes them.
std::vector<Step> steps_of(const Mesh& mesh, int64_t micro_batches, int64_t stage, bool in_order) {
  std::vector<Step> steps;
  comm::GroupInfo info;
  info.rank = static_cast<int>(stage);
  info.members.resize(static_cast<size_t>(mesh.pp));
  NotedGroup activations(info, 0, in_order, steps);
  NotedGroup gradients(info, 1, in_order, steps);
  int64_t room = spec::peak_in_flight(mesh, micro_batches, stage);
  float memory[5] = {};
  std::vector<std::unique_ptr<Room>> rooms;
  std::vector<Inbox*> chunks;
  for (int64_t chunk = 0; chunk < mesh.vpp; ++chunk) {
    chunks.push_back(rooms.emplace_back(std::make_unique<Room>(room, memory)).get());
  }
  Boundary boundary = {&activations, &gradients};
  for (size_t i = 0; i < 2; ++i) {
    boundary.send[i] = engine::matrix(memory + 1 + i, DType::f32, 1, 1);
    boundary.d_residual[i] = engine::matrix(memory + 3 + i, DType::f32, 1, 1);
  }
  PipelineMessages pipeline(mesh, stage, chunks, boundary);
  Executor executor;
  handle_messages(executor, pipeline);
  using Kind = spec::ActionKind;
  size_t number = 0;  // of the action that is executed
  std::set<size_t> forward_ends;
  std::set<size_t> weight_ends;
  bool evaluating = false;
  const auto nothing = [](engine::Stream&, const spec::Action&) {};
  for (const Kind kind :
       {Kind::load, Kind::gather, Kind::gather_backward, Kind::reduce, Kind::norm, Kind::update}) {
    executor.handle(kind, nothing);
  }
  executor.handle(Kind::forward, [&](engine::Stream& stream, const spec::Action& action) {
    if (!forward_ends.contains(number)) return;
    if (action.chunk * mesh.pp + stage < mesh.virtual_stages() - 1) pipeline.output(stream);
    if (evaluating) ++room;
  });
  std::set<std::pair<int64_t, int64_t>> awaited;  // micro-batch and chunk
  executor.handle(Kind::backward, [&](engine::Stream& stream, const spec::Action& action) {
    if (awaited.insert({action.micro, action.chunk}).second) pipeline.await_gradient(stream);
  });
  executor.handle(Kind::weight_gradient, [&](engine::Stream&, const spec::Action& action) {
    if (!weight_ends.contains(number)) return;
    ++room;
    if (stage == 0 && action.chunk == 0) pipeline.drop_gradient();
  });
  const spec::Recipe recipe = recipe_of(mesh, micro_batches);
  const spec::Coordinates at = {.pp = stage};
  const spec::ParamLayout layout =
      spec::param_layout(spec::param_table(recipe.model), recipe.parallel, at);
  const std::unique_ptr<engine::Stream> stream = engine::make_cpu_stream(1);
  const auto execute = [&](const std::vector<spec::Action>& actions) {
    forward_ends = ends_of(actions, Kind::forward);
    weight_ends = ends_of(actions, Kind::weight_gradient);
    awaited.clear();
    pipeline.begin(actions);
    for (number = 0; number < actions.size(); ++number) {
      executor.run(*stream, {&actions[number], 1});
    }
  };
  for (const bool evaluates : {false, true, false}) {
    evaluating = evaluates;
    if (evaluates) {
      std::vector<spec::Action> evaluation =
          spec::evaluation_list(recipe, spec::tutti_profile(), layout, at);
      for (int64_t micro = 0; micro < 3; ++micro) {
        for (spec::Action& action : evaluation) action.micro = micro;
        execute(evaluation);
      }
    } else {
      execute(spec::step_list(recipe, spec::tutti_profile(), layout, at));
    }
    pipeline.end(*stream);
  }
  return steps;
}

// Plays all stages; empty when all calls end, else where they have come to a halt. The stream of a
// stage is at a step when all waits before it are over.
std::string play(const std::vector<std::vector<Step>>& stages) {
  struct State {
    std::vector<bool> started, done;
    size_t launched = 0;  // calls that have started, of those in order
    size_t reached = 0;   // steps that the stream is past
  };
  using Key = std::tuple<int, int, int, size_t>;         // group, from, to, number
  std::map<Key, std::pair<size_t, size_t>> messages[2];  // by sends, receives: stage and step
  std::vector<State> states(stages.size());
  const auto key_of = [](size_t stage, const Step& step) {
    const int mine = static_cast<int>(stage);
    return step.kind == Step::send ? Key{step.group, mine, step.peer, step.number}
                                   : Key{step.group, step.peer, mine, step.number};
  };
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    states[stage].started.resize(stages[stage].size());
    states[stage].done.resize(stages[stage].size());
    for (size_t i = 0; i < stages[stage].size(); ++i) {
      const Step& step = stages[stage][i];
      if (step.kind != Step::wait) messages[step.kind][key_of(stage, step)] = {stage, i};
    }
  }
  const auto is_done = [&](const Key& key) {
    const auto sent = messages[Step::send].find(key), received = messages[Step::receive].find(key);
    if (sent == messages[Step::send].end() || received == messages[Step::receive].end())
      return false;
    const auto [from, send] = sent->second;
    const auto [to, receive] = received->second;
    return states[from].started[send] && states[to].started[receive];
  };
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (size_t stage = 0; stage < stages.size(); ++stage) {
      State& state = states[stage];
      const std::vector<Step>& steps = stages[stage];
      // The stream goes as far as what it waits for is done.
      while (state.reached < steps.size()) {
        const Step& step = steps[state.reached];
        if (step.kind == Step::wait && !is_done(key_of(stage, steps[step.number]))) break;
        ++state.reached;
        goes_on = true;
      }
      // Calls start one after the other, those of a lane when the one before is done.
      while (state.launched < steps.size()) {
        const Step& step = steps[state.launched];
        if (step.kind != Step::wait) {
          if (state.launched >= state.reached) break;
          if (step.number > 0) {
            Step before = step;
            --before.number;
            if (!is_done(key_of(stage, before))) break;
          }
          state.started[state.launched] = true;
        }
        ++state.launched;
        goes_on = true;
      }
    }
  }
  std::string halted;
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    if (states[stage].launched == stages[stage].size() &&
        states[stage].reached == stages[stage].size()) {
      continue;
    }
    halted += fmt::format("stage {}: started {}, passed {} of {}; ", stage, states[stage].launched,
                          states[stage].reached, stages[stage].size());
  }
  return halted;
}

std::string play(const Mesh& mesh, int64_t micro_batches, bool in_order) {
  std::vector<std::vector<Step>> stages;
  for (int64_t stage = 0; stage < mesh.pp; ++stage) {
    stages.push_back(steps_of(mesh, micro_batches, stage, in_order));
  }
  return play(stages);
}

TEST(LaunchOrder, NoScheduleComesToAHalt) {
  for (const int64_t p : {2, 3, 4, 5, 8}) {
    for (const int64_t m : {1, 2, 3, 7, 8, 12, 16}) {
      for (const Pipeline kind : {Pipeline::one_f_one_b, Pipeline::zero_bubble, Pipeline::gpipe}) {
        EXPECT_EQ(play({.pp = p, .pipeline = kind}, m, true), "")
            << "pp " << p << " micro-batches " << m << " schedule " << static_cast<int>(kind);
      }
    }
    for (const int64_t v : {2, 3, 4}) {
      for (const int64_t times : {1, 2, 4}) {
        EXPECT_EQ(play({.pp = p, .vpp = v}, times * p, true), "")
            << "pp " << p << " vpp " << v << " micro-batches " << times * p;
      }
    }
  }
}

// What is posted early stands in the way of the sends that it waits for.
TEST(LaunchOrder, ReceivesThatArePostedEarlyDo) { EXPECT_NE(play({.pp = 2}, 4, false), ""); }

}  // namespace
}  // namespace tutti::parallel
