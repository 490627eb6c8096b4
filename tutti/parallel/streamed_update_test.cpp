// State that lies on the host is updated as if it were where the stream computes, to the bit.
#include "tutti/parallel/streamed_update.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "tutti/base/rng.h"
#include "tutti/engine/stream.h"
#include "tutti/engine/update_scalars.h"
#include "tutti/parallel/sharded_adamw.h"
#include "tutti/spec/memory/memory.h"

namespace tutti::parallel {
namespace {

spec::Recipe small(bool offload, spec::Precision precision) {
  spec::Recipe recipe = spec::parse_recipe(
      "model: {layers: 3, hidden: 40, heads: 2, vocabulary: 67, context: 12}", "test", {}, "");
  recipe.precision = precision;
  recipe.offload.optimizer = offload;
  return recipe;
}

// One rank's state, after some updates with random gradients.
class Updated {
 public:
  Updated(const spec::Recipe& recipe, int64_t bucket_elements)
      : stream_(engine::make_cpu_stream(2)),
        layout_(spec::param_layout(
            spec::param_table(recipe.model, {}, spec::tutti_profile().vocabulary_multiple))),
        memory_(spec::memory_map(recipe)),
        queues_{engine::make_cpu_copy_queue(), engine::make_cpu_copy_queue()},
        adamw_(recipe, layout_, {}, memory_, &queues_, bucket_elements) {
    fill("weights", 3);
    fill("moment1", 5);
    if (memory_.map().has("master")) fill("master", 7);
    adamw_.state_changed(*stream_);
    for (int64_t step = 1; step <= 3; ++step) {
      if (step != 2) adamw_.fetch_ahead();
      fill("gradients", 10 + static_cast<uint64_t>(step));
      const engine::UpdateScalars scalars = engine::update_scalars(
          1e-2, static_cast<double>(step), static_cast<float>(recipe.optimizer.beta1),
          static_cast<float>(recipe.optimizer.beta2), 0.5F);
      for (size_t slice = adamw_.slices().size(); slice-- > 0;) {
        adamw_.update(*stream_, static_cast<int64_t>(slice), &scalars);
      }
    }
  }

  std::string bytes(const char* arena) const {
    const engine::Arena& of = memory_.arena(arena);
    return {static_cast<const char*>(of.data()), static_cast<size_t>(of.bytes())};
  }

 private:
  void fill(const char* arena, uint64_t seed) {
    const engine::Vector all = memory_.vector(arena, "flat", 0, "flat");
    if (all.dtype != DType::f32) return;
    for (int64_t i = 0; i < all.count; ++i) {
      // Moments and masters are any numbers; second moments stay at zero.
      const uint64_t bits = random_u64(seed, static_cast<uint64_t>(i));
      all.as<float>()[i] = static_cast<float>(bits >> 40) * 0x1p-24F - 0.5F;
    }
  }

  std::unique_ptr<engine::Stream> stream_;
  spec::ParamLayout layout_;
  model::Memory memory_;
  engine::CopyQueues queues_;
  ShardedAdamw adamw_;
};

TEST(StreamedUpdate, IsTheUpdateInPlaceToTheBit) {
  for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
    const Updated plain(small(false, precision), spec::kBucketElements);
    const Updated streamed(small(true, precision), spec::kBucketElements);
    for (const char* arena : {"weights", "moment1", "moment2"}) {
      EXPECT_EQ(streamed.bytes(arena), plain.bytes(arena)) << arena;
    }
    if (precision == spec::Precision::bf16) {
      EXPECT_EQ(streamed.bytes("master"), plain.bytes("master"));
    }
  }
}

// Pieces cover every owned element once, whatever a rank owns of its buckets.
TEST(StreamedUpdate, TakesEveryPartOfAShardOnce) {
  const engine::CopyQueues queues{engine::make_cpu_copy_queue(), engine::make_cpu_copy_queue()};
  const model::Memory memory(spec::memory_map(small(true, spec::Precision::f32)));
  const int64_t room = memory.vector("optimizer_buffers", "buffer", 0, "moment1").count;
  std::vector<float> moments(static_cast<size_t>(8 * room), 0.0F);
  // Three slices that follow one another in the shard, and one that stands apart; of odd sizes.
  std::vector<OwnedSlice> slices;
  int64_t in_shard = 0;
  int64_t total = 0;
  for (const int64_t count : {room / 3, 2 * room + 7, room, int64_t{5}}) {
    if (slices.size() == 3) in_shard += 64;
    OwnedSlice slice;
    slice.shard = {.first = 10 * in_shard, .shard_first = in_shard, .count = count};
    for (engine::Vector* vector :
         {&slice.state.gradient, &slice.state.master, &slice.state.moment1, &slice.state.moment2}) {
      *vector = engine::vector(moments.data() + in_shard, DType::f32, count);
    }
    in_shard += count;
    total += count;
    slices.push_back(std::move(slice));
  }
  StreamedUpdate update(slices, memory, queues);
  EXPECT_EQ(update.pieces(), 5U);  // 5 apart; then 3.33 rooms and 7
  for (auto slice = slices.rbegin(); slice != slices.rend(); ++slice) {
    int64_t seen = 0;
    update.update_slice([&](const optim::AdamwState& state) {
      for (int64_t i = 0; i < state.moment1.count; ++i) state.moment1.as<float>()[i] += 1;
      // The other array goes over the same memory here, unchanged since it came.
      for (int64_t i = 0; i < state.moment2.count; ++i) state.moment2.as<float>()[i] += 1;
      seen += state.moment1.count;
    });
    EXPECT_EQ(seen, slice->shard.count);
  }
  EXPECT_EQ(std::accumulate(moments.begin(), moments.end(), 0.0), static_cast<double>(total));
}

}  // namespace
}  // namespace tutti::parallel
