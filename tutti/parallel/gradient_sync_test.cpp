#include "tutti/parallel/gradient_sync.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/base/rng.h"
#include "tutti/comm/world/thread_world.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::parallel {
namespace {

// Adds up from the last rank to the first: as right as the other way, to rounding. For sums alone.
class Backwards : public comm::Group {
 public:
  explicit Backwards(comm::Group& inner) : Group(inner.info()), inner_(inner) {}
  std::vector<comm::RankActivity> activity() const override { return inner_.activity(); }
  void fail_with(const std::string& message) override { inner_.fail_with(message); }

 protected:
  comm::Ticket enqueue(engine::Stream& stream, const comm::Call& call) override {
    const bool scatters = call.shape.kind == comm::CallKind::reduce_scatter;
    TUTTI_CHECK(scatters || call.shape.kind == comm::CallKind::all_reduce, "{}",
                comm::call_text(call.shape));
    const int64_t count = scatters ? size() * call.shape.count : call.shape.count;
    std::vector<float> all(static_cast<size_t>(size() * count));
    inner_
        .all_gather(stream, engine::vector(const_cast<void*>(call.send), DType::f32, count),
                    engine::vector(all.data(), DType::f32, size() * count))
        .wait(stream);
    const int64_t first = scatters ? rank() * call.shape.count : 0;
    for (int64_t i = 0; i < call.shape.count; ++i) {
      float sum = 0;
      for (int64_t from = size() - 1; from >= 0; --from) {
        sum += all[static_cast<size_t>(from * count + first + i)];
      }
      static_cast<float*>(call.receive)[i] = sum;
    }
    return {};
  }
  bool done(int32_t /*lane*/, uint64_t /*number*/) const override { return true; }
  void wait(engine::Stream& /*stream*/, int32_t /*lane*/, uint64_t /*number*/) override {}

 private:
  comm::Group& inner_;
};

constexpr const char* kRecipe = R"(
model: {layers: 2, hidden: 32, heads: 2, vocabulary: 65, context: 16}
data: {train: corpus}
)";
constexpr int64_t kBucket = 1024;  // elements: the table has several

// Element of the table -> its gradient, of a stage; reported by its owner.
using Table = std::map<int64_t, float>;

// What each end of a pipeline of two gets, when the replicas of the last stage add up backwards.
std::pair<Table, Table> summed_tables(int zero) {
  spec::Recipe recipe = spec::parse_recipe(kRecipe, "test", {}, "");
  recipe.parallel = {.dp = 3, .pp = 2, .zero = zero};
  const spec::ParamTable parameters = spec::param_table(recipe.model, recipe.lora);
  const std::string name = spec::tied_copy(recipe, {.pp = 1});
  std::pair<Table, Table> out;
  std::mutex mutex;
  comm::run_threads(recipe.parallel, [&](comm::World& world, engine::Stream& stream) {
    Ranks ranks = ranks_of(world, recipe.model.kv_heads);
    Backwards backwards(*ranks.replicas);
    if (ranks.at.pp == 1) ranks.replicas = &backwards;
    const spec::ParamLayout layout = spec::param_layout(parameters, recipe.parallel, ranks.at);
    std::vector<float> values(static_cast<size_t>(layout.trainable_elements));
    const uint64_t key = stream_key(static_cast<uint64_t>(world.rank()), "gradients");
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = static_cast<float>(random_u64(key, i) % 1'000'003) * 1e-6F - 0.5F;
    }
    const engine::Vector gradients =
        engine::vector(values.data(), DType::f32, layout.trainable_elements);
    const spec::PlacedParam& table = layout.find(name);
    GradientSync sync(
        layout, recipe.parallel, ranks, gradients,
        engine::vector(values.data() + table.element_offset, DType::f32, table.shard.count()),
        kBucket);
    const std::vector<spec::Bucket> buckets = spec::buckets(layout, recipe.parallel, kBucket);
    for (size_t i = 0; i < buckets.size(); ++i) sync.reduce(stream, static_cast<int64_t>(i));
    sync.finish(stream);
    sync.sum_tied(stream);
    const std::lock_guard lock(mutex);
    Table& mine = ranks.at.pp == 0 ? out.first : out.second;
    for (const spec::ShardSlice& slice :
         spec::owned_slices(layout, recipe.parallel, ranks.at, kBucket)) {
      for (int64_t i = slice.first; i < slice.first + slice.count; ++i) {
        const int64_t at = i - table.element_offset;
        if (at >= 0 && at < table.shard.count()) mine[at] = values[static_cast<size_t>(i)];
      }
    }
  });
  return out;
}

// NCCL's rings add up in an order of their own on every stage.
TEST(GradientSync, TiedTablesAreEqualForAnyOrderOfGroups) {
  Table without;
  for (const int zero : {0, 1}) {
    const auto [first, last] = summed_tables(zero);
    EXPECT_EQ(first.size(), 128U * 32U);  // with padded rows
    EXPECT_EQ(first, last) << "ZeRO " << zero;
    if (zero == 0) without = first;
    EXPECT_EQ(first, without);
  }
}

}  // namespace
}  // namespace tutti::parallel
