// What a step executes, and what spec describes of it: multisets of (operation, dims, FLOPs,
// bytes).
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "tutti/comm/world/thread_world.h"
#include "tutti/engine/recorder.h"
#include "tutti/spec/program/program.h"
#include "tutti/train/testing/layouts.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train::testing {

using Key = std::tuple<std::string, std::array<int64_t, 6>, double, double>;
using Multiset = std::map<Key, int64_t>;

inline Multiset recorded(const spec::Recipe& recipe) {
  Trainer trainer(recipe);
  trainer.initialize();
  randomize_teacher(trainer);
  RandomBatches batches(recipe, 1);
  engine::Recorder recorder;
  trainer.stream().set_recorder(&recorder);
  trainer.step(batches.source(), 1e-3, 1);
  trainer.stream().set_recorder(nullptr);
  Multiset out;
  for (const engine::OpRecord& record : recorder.records()) {
    ++out[{record.op, record.dims, record.flops, record.bytes}];
  }
  return out;
}

inline Multiset described(const spec::Recipe& recipe) {
  const spec::Program program = spec::make_program(recipe, spec::tutti_profile_on(recipe));
  Multiset out;
  for (const spec::Op& op : spec::step_operations(program, spec::make_schedule(recipe), 0)) {
    ++out[{op.name, op.dims, op.flops, op.bytes}];
  }
  return out;
}

inline std::string text(const Key& key) {
  const auto& [name, dims, flops, bytes] = key;
  return fmt::format("{} {} flops {} bytes {}", name, fmt::join(dims, "x"), flops, bytes);
}

inline void expect_equal(const Multiset& actual, const Multiset& expected) {
  for (const auto& [key, count] : expected) {
    const auto found = actual.find(key);
    EXPECT_EQ(found == actual.end() ? 0 : found->second, count) << "described: " << text(key);
  }
  for (const auto& [key, count] : actual) {
    EXPECT_TRUE(expected.count(key) > 0) << "executed " << count << " times: " << text(key);
  }
}

inline void expect_equal(const spec::Recipe& recipe) {
  expect_equal(recorded(recipe), described(recipe));
}

// What every rank of a mesh executes, with what its groups were asked for. The gradient's norm is
// left out: of what several ranks hold, one counts it.
inline std::vector<Multiset> recorded_by_ranks(const spec::Recipe& recipe) {
  std::vector<Multiset> out(static_cast<size_t>(recipe.parallel.world()));
  comm::run_threads(recipe.parallel, [&](comm::World& world, engine::Stream&) {
    const parallel::Ranks ranks = parallel::ranks_of(world, recipe.model.kv_heads);
    Trainer trainer(recipe, ranks);
    trainer.initialize();
    RankBatches batches(recipe, ranks.at.dp);
    engine::Recorder recorder;
    trainer.stream().set_recorder(&recorder);
    trainer.step(batches.step(0), 1e-3, 1);
    trainer.stream().set_recorder(nullptr);
    Multiset& mine = out[static_cast<size_t>(world.rank())];
    for (const engine::OpRecord& record : recorder.records()) {
      if (record.op == std::string_view("squared_norm")) continue;
      ++mine[{record.op, record.dims, record.flops, record.bytes}];
    }
  });
  return out;
}

inline Multiset described_on_ranks(const spec::Recipe& recipe) {
  Multiset out = described(recipe);
  std::erase_if(out, [](const auto& one) { return std::get<0>(one.first) == "squared_norm"; });
  return out;
}

}  // namespace tutti::train::testing
