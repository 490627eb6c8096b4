#include "tutti/spec/schedule/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

struct Times {
  double forward = 1;
  double backward = 1;
  double weight = 1;
};

struct Simulated {
  bool finished = false;
  double makespan = 0;
  double busy = 0;  // of one rank
  double bubble() const { return (makespan - busy) / busy; }
};

// Runs the actions of all pipeline ranks; passes take time, messages none.
Simulated simulate(const Schedule& schedule, const Times& times) {
  const int64_t p = schedule.mesh.pp;
  std::vector<std::vector<Action>> actions;
  for (int64_t stage = 0; stage < p; ++stage) {
    actions.push_back(step_actions(schedule, stage, 1));
  }
  using Message = std::tuple<bool, int64_t, int64_t>;  // gradient, micro, receiving virtual stage
  std::map<Message, double> sent;
  std::vector<size_t> next(static_cast<size_t>(p), 0);
  std::vector<double> clock(static_cast<size_t>(p), 0);
  Simulated result;
  for (bool progress = true; progress;) {
    progress = false;
    for (int64_t stage = 0; stage < p; ++stage) {
      const auto rank = static_cast<size_t>(stage);
      for (; next[rank] < actions[rank].size(); ++next[rank]) {
        const Action& action = actions[rank][next[rank]];
        const int64_t at = action.chunk * p + stage;
        double& now = clock[rank];
        if (action.kind == ActionKind::receive || action.kind == ActionKind::receive_gradient) {
          const bool gradient = action.kind == ActionKind::receive_gradient;
          const auto found = sent.find({gradient, action.micro, at});
          if (found == sent.end()) break;
          now = std::max(now, found->second);
        } else if (action.kind == ActionKind::send) {
          sent[{false, action.micro, at + 1}] = now;
        } else if (action.kind == ActionKind::send_gradient) {
          sent[{true, action.micro, at - 1}] = now;
        } else if (action.kind == ActionKind::forward) {
          now += times.forward;
        } else if (action.kind == ActionKind::backward) {
          now += times.backward;
        } else if (action.kind == ActionKind::weight_gradient) {
          now += times.weight;
        }
        progress = true;
      }
    }
  }
  result.finished = true;
  for (size_t rank = 0; rank < actions.size(); ++rank) {
    result.finished = result.finished && next[rank] == actions[rank].size();
    result.makespan = std::max(result.makespan, clock[rank]);
  }
  result.busy = static_cast<double>(schedule.micro_batches * schedule.mesh.vpp) *
                (times.forward + times.backward + times.weight);
  return result;
}

Schedule pipeline(Pipeline kind, int64_t p, int64_t v, int64_t m) {
  Schedule schedule;
  schedule.mesh.pp = p;
  schedule.mesh.vpp = v;
  schedule.mesh.pipeline = kind;
  schedule.micro_batches = m;
  return schedule;
}

TEST(Schedule, BubbleOf1f1bIsTheory) {
  for (const int64_t p : {1, 2, 3, 4, 8}) {
    for (const int64_t m : {p, p + 1, 4 * p, 5 * p + 3}) {
      const Simulated run = simulate(pipeline(Pipeline::one_f_one_b, p, 1, m), {1, 1.25, 0.75});
      ASSERT_TRUE(run.finished);
      EXPECT_DOUBLE_EQ(run.bubble(), static_cast<double>(p - 1) / static_cast<double>(m))
          << p << " " << m;
    }
  }
}

TEST(Schedule, BubbleOfGpipeIsTheory) {
  const Simulated run = simulate(pipeline(Pipeline::gpipe, 4, 1, 16), {1, 1, 1});
  ASSERT_TRUE(run.finished);
  EXPECT_DOUBLE_EQ(run.bubble(), 3.0 / 16);
}

TEST(Schedule, BubbleOfInterleavedIsTheory) {
  for (const int64_t p : {2, 3, 4, 8}) {
    for (const int64_t v : {2, 3, 5}) {
      for (const int64_t m : {p, 2 * p, 6 * p}) {
        const Simulated run = simulate(pipeline(Pipeline::one_f_one_b, p, v, m), {1, 1, 1});
        ASSERT_TRUE(run.finished) << p << " " << v << " " << m;
        EXPECT_DOUBLE_EQ(run.bubble(), static_cast<double>(p - 1) / static_cast<double>(v * m))
            << p << " " << v << " " << m;
      }
    }
  }
}

TEST(Schedule, BubbleOfZeroBubbleIsTheory) {
  for (const int64_t p : {1, 2, 3, 4, 8, 16}) {
    for (const int64_t m : {p, p + 1, 2 * p, 5 * p + 3}) {
      const Simulated run = simulate(pipeline(Pipeline::zero_bubble, p, 1, m), {1, 1, 1});
      ASSERT_TRUE(run.finished);
      EXPECT_DOUBLE_EQ(run.bubble(), static_cast<double>(p - 1) / static_cast<double>(3 * m))
          << p << " " << m;
    }
  }
}

struct Layout {
  Pipeline kind;
  int64_t p, v, m;
};

std::vector<Layout> many_layouts() {
  std::vector<Layout> layouts;
  for (const int64_t p : {1, 2, 3, 5}) {
    for (const int64_t m : {1, 2, 4, 7, 20}) {
      for (const Pipeline kind : {Pipeline::one_f_one_b, Pipeline::zero_bubble, Pipeline::gpipe}) {
        layouts.push_back({kind, p, 1, m});
      }
    }
    for (const int64_t v : {2, 3}) {
      if (p > 1) layouts.push_back({Pipeline::one_f_one_b, p, v, 3 * p});
    }
  }
  return layouts;
}

// Every micro-batch passes every virtual stage once in each direction, its weight gradient after
// its input gradient after its forward, and no layout deadlocks.
TEST(Schedule, EveryPassOnceAndInOrder) {
  for (const Layout& layout : many_layouts()) {
    const Schedule schedule = pipeline(layout.kind, layout.p, layout.v, layout.m);
    EXPECT_TRUE(simulate(schedule, {1, 2, 1}).finished);
    for (int64_t stage = 0; stage < layout.p; ++stage) {
      std::map<std::tuple<int64_t, int64_t>, std::vector<ActionKind>> passes;
      for (const Action& action : pass_order(schedule.mesh, layout.m, stage)) {
        passes[{action.micro, action.chunk}].push_back(action.kind);
      }
      EXPECT_EQ(static_cast<int64_t>(passes.size()), layout.m * layout.v);
      for (const auto& [key, order] : passes) {
        EXPECT_EQ(order, (std::vector<ActionKind>{ActionKind::forward, ActionKind::backward,
                                                  ActionKind::weight_gradient}));
        EXPECT_LT(std::get<0>(key), layout.m);
        EXPECT_LT(std::get<1>(key), layout.v);
      }
    }
  }
}

TEST(Schedule, MessagesMatchInOrderOnEveryLink) {
  for (const Layout& layout : many_layouts()) {
    const Schedule schedule = pipeline(layout.kind, layout.p, layout.v, layout.m);
    using Message = std::tuple<int64_t, int64_t>;  // micro, receiving virtual stage
    std::map<std::tuple<int64_t, bool>, std::vector<Message>> sent;      // by sender
    std::map<std::tuple<int64_t, bool>, std::vector<Message>> received;  // by sender
    for (int64_t stage = 0; stage < layout.p; ++stage) {
      for (const Action& action : step_actions(schedule, stage, 1)) {
        const int64_t at = action.chunk * layout.p + stage;
        const int64_t before = (stage + layout.p - 1) % layout.p;
        const int64_t after = (stage + 1) % layout.p;
        switch (action.kind) {
          case ActionKind::send: sent[{stage, false}].push_back({action.micro, at + 1}); break;
          case ActionKind::send_gradient:
            sent[{stage, true}].push_back({action.micro, at - 1});
            break;
          case ActionKind::receive: received[{before, false}].push_back({action.micro, at}); break;
          case ActionKind::receive_gradient:
            received[{after, true}].push_back({action.micro, at});
            break;
          default: break;
        }
      }
    }
    EXPECT_EQ(sent, received) << layout.p << " " << layout.v << " " << layout.m;
  }
}

TEST(Schedule, PeakInFlightEqualsTheCount) {
  for (const Layout& layout : many_layouts()) {
    const Schedule schedule = pipeline(layout.kind, layout.p, layout.v, layout.m);
    for (int64_t stage = 0; stage < layout.p; ++stage) {
      int64_t held = 0;
      int64_t most = 0;
      for (const Action& action : pass_order(schedule.mesh, layout.m, stage)) {
        if (action.kind == ActionKind::forward) most = std::max(most, ++held);
        if (action.kind == ActionKind::weight_gradient) --held;
      }
      EXPECT_EQ(held, 0);
      EXPECT_EQ(peak_in_flight(schedule.mesh, layout.m, stage), most)
          << "p " << layout.p << " v " << layout.v << " m " << layout.m << " stage " << stage;
    }
  }
}

// The first stage's activations: L layers for 1F1B, times 1 + (p-1)/(p v) interleaved (Korthikanti
// et al. 2022, section 4.2.3).
TEST(Schedule, FirstStageHoldsWhatKorthikantiSay) {
  EXPECT_EQ(peak_in_flight(pipeline(Pipeline::one_f_one_b, 8, 1, 64).mesh, 64, 0), 8);
  EXPECT_EQ(peak_in_flight(pipeline(Pipeline::one_f_one_b, 8, 1, 4).mesh, 4, 0), 4);
  EXPECT_EQ(peak_in_flight(pipeline(Pipeline::one_f_one_b, 8, 3, 64).mesh, 64, 0), 8 * 3 + 7);
  EXPECT_EQ(peak_in_flight(pipeline(Pipeline::zero_bubble, 8, 1, 64).mesh, 64, 7), 8);
}

TEST(Schedule, UnequalChunksAreCountedExactly) {
  Mesh mesh = pipeline(Pipeline::one_f_one_b, 4, 3, 0).mesh;
  const std::vector<int64_t> layers = {3, 0, 1};
  for (int64_t stage = 0; stage < 4; ++stage) {
    int64_t held = 0;
    int64_t most = 0;
    for (const Action& action : pass_order(mesh, 64, stage)) {
      const int64_t weight = layers[static_cast<size_t>(action.chunk)];
      if (action.kind == ActionKind::forward) most = std::max(most, held += weight);
      if (action.kind == ActionKind::weight_gradient) held -= weight;
    }
    EXPECT_EQ(peak_in_flight_weighted(mesh, 64, stage, layers), most);
  }
}

TEST(Schedule, OneRankAccumulates) {
  const Recipe recipe = recipe_of("gpt2-124m", {"batch.global=4", "batch.micro=2"});
  std::vector<std::string> names;
  for (const Action& action : step_actions(make_schedule(recipe), 0, 1)) {
    names.push_back(std::string(action_name(action.kind)) + std::to_string(action.micro));
  }
  EXPECT_EQ(names, (std::vector<std::string>{"load0", "forward0", "backward0", "weight_gradient0",
                                             "load1", "forward1", "backward1", "weight_gradient1",
                                             "norm0", "update0"}));
}

TEST(Schedule, GatherAndReduceFollowZero) {
  const auto count = [](int64_t zero, ActionKind kind) {
    const Recipe recipe =
        recipe_of("gpt2-124m", {"batch.global=8", "batch.micro=1", "parallel.dp=2",
                                "parallel.zero=" + std::to_string(zero)});
    const std::vector<Action> actions = step_actions(make_schedule(recipe), 0, 1);
    return std::count_if(actions.begin(), actions.end(),
                         [&](const Action& action) { return action.kind == kind; });
  };
  EXPECT_EQ(count(0, ActionKind::gather), 0);
  EXPECT_EQ(count(0, ActionKind::reduce), 1);
  EXPECT_EQ(count(1, ActionKind::gather), 1);
  EXPECT_EQ(count(1, ActionKind::reduce), 1);
  EXPECT_EQ(count(2, ActionKind::reduce), 4);
  EXPECT_EQ(count(3, ActionKind::gather), 4);
  EXPECT_EQ(count(3, ActionKind::gather_backward), 4);
  EXPECT_EQ(count(3, ActionKind::reduce), 4);
}

TEST(Schedule, EvaluatesAndSavesWhenDue) {
  const Recipe recipe = recipe_of(
      "gpt2-124m", {"batch.global=8", "evaluate.every_samples=20", "checkpoint.every_steps=2"});
  const Schedule schedule = make_schedule(recipe);
  const auto has = [&](int64_t step, ActionKind kind) {
    const std::vector<Action> actions = step_actions(schedule, 0, step);
    return std::any_of(actions.begin(), actions.end(),
                       [&](const Action& action) { return action.kind == kind; });
  };
  EXPECT_FALSE(has(2, ActionKind::evaluate));
  EXPECT_TRUE(has(3, ActionKind::evaluate));
  EXPECT_TRUE(has(2, ActionKind::save));
  EXPECT_FALSE(has(3, ActionKind::save));
}

}  // namespace
}  // namespace tutti::spec
