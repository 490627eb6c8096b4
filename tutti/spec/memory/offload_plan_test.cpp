#include "tutti/spec/memory/offload_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "tutti/spec/memory/memory.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

using Item = std::tuple<int64_t, int64_t, int64_t>;  // micro-batch, chunk, layer
Item item_of(const OffloadUse& use) { return {use.micro, use.chunk, use.layer}; }

// Replays the copies of a plan in the order in which they begin, each at the worst moment: a slot
// being copied out is read as late as the plan allows. Every pass must find its layer's
// activations.
void replay(const OffloadPlan& plan) {
  std::vector<Item> slots(static_cast<size_t>(plan.device_slots)),
      host(static_cast<size_t>(plan.host_slots));
  std::map<int64_t, OffloadUse> outgoing;  // by slot
  std::map<int64_t, int64_t> reserved;     // slots that hold activations for a later use, by slot
  size_t next = 0;
  int64_t leaving = 0;
  const auto wait_out = [&](int64_t slot) {
    const auto found = outgoing.find(slot);
    if (found == outgoing.end()) return;
    const OffloadUse& use = found->second;
    ASSERT_EQ(slots[static_cast<size_t>(slot)], item_of(use));
    host[static_cast<size_t>(use.host)] = item_of(use);
    outgoing.erase(found);
  };
  const auto bring = [&](const OffloadArrival& arrival) {
    const OffloadUse& use = plan.uses[static_cast<size_t>(arrival.use)];
    EXPECT_TRUE(use.arrives);
    if (use.outgoing) wait_out(use.slot);
    EXPECT_EQ(outgoing.count(use.slot), 0U);
    EXPECT_EQ(host[static_cast<size_t>(use.host)], item_of(use));
    slots[static_cast<size_t>(use.slot)] = item_of(use);
    EXPECT_TRUE(reserved.emplace(use.slot, arrival.use).second);
  };
  for (size_t i = 0; i < plan.uses.size(); ++i) {
    const OffloadUse& use = plan.uses[i];
    const auto number = static_cast<int64_t>(i);
    for (; next < plan.arrivals.size() && plan.arrivals[next].use <= number; ++next) {
      bring(plan.arrivals[next]);
    }
    if (reserved.count(use.slot) > 0) {
      EXPECT_EQ(reserved.at(use.slot), number);
      reserved.erase(use.slot);
    }
    Item& slot = slots[static_cast<size_t>(use.slot)];
    if (use.pass == ActionKind::forward) {
      if (use.outgoing) wait_out(use.slot);
      EXPECT_EQ(outgoing.count(use.slot), 0U);
      // The output of the previous layer, which this one reads, is in another slot.
      if (i > 0 && plan.uses[i - 1].pass == ActionKind::forward) {
        EXPECT_NE(use.slot, plan.uses[i - 1].slot);
      }
      slot = item_of(use);
    } else {
      EXPECT_EQ(slot, item_of(use));
    }
    if (use.leaves) {
      ++leaving;
      outgoing[use.slot] = use;
    }
    for (; next < plan.arrivals.size() && plan.arrivals[next].after <= number; ++next) {
      bring(plan.arrivals[next]);
    }
  }
  EXPECT_EQ(next, plan.arrivals.size());
  EXPECT_EQ(leaving, plan.leaving);
  EXPECT_EQ(static_cast<int64_t>(plan.arrivals.size()), plan.arriving);
}

Recipe pipelined(int64_t layers, int64_t micro_batches, const Mesh& mesh) {
  Recipe recipe = recipe_of("gpt2-124m");
  recipe.model.layers = layers;
  recipe.parallel = mesh;
  recipe.batch.micro = 1;
  recipe.batch.global = micro_batches;
  recipe.offload.activations = kEveryLayer;
  return recipe;
}

TEST(OffloadPlan, EveryPassFindsItsActivations) {
  int64_t plans = 0;
  for (const int64_t pp : {1, 2, 3, 4}) {
    for (const Pipeline pipeline :
         {Pipeline::one_f_one_b, Pipeline::zero_bubble, Pipeline::gpipe}) {
      for (const int64_t vpp : {1, 2}) {
        if (vpp > 1 && (pipeline != Pipeline::one_f_one_b || pp == 1)) continue;
        for (const int64_t layers : {1, 2, 3, 5}) {
          for (const int64_t micro : {1, 2, 4, 9}) {
            if (vpp > 1 && micro % pp != 0) continue;
            Recipe recipe =
                pipelined(layers * pp * vpp, micro, {.pp = pp, .vpp = vpp, .pipeline = pipeline});
            for (const int64_t covered : {kEveryLayer, layers - 1}) {
              recipe.offload.activations = covered;
              for (int64_t stage = 0; stage < pp; ++stage) {
                SCOPED_TRACE(fmt::format(
                    "{} layers, {} covered, {} micro-batches, stage {} of {}, "
                    "vpp {}, schedule {}",
                    layers, covered, micro, stage, pp, vpp, static_cast<int>(pipeline)));
                replay(offload_plan(recipe, stage, false, false));
                if (HasFailure()) return;
                ++plans;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(plans, 300);
}

// With one in-flight micro-batch the last two layers stay.
TEST(OffloadPlan, LastTwoLayersStayWithOneMicroBatch) {
  for (const int64_t layers : {1, 2, 3, 7}) {
    const OffloadPlan plan = offload_plan(pipelined(layers, 4, {}), 0, false, false);
    const int64_t leave = std::max<int64_t>(0, layers - 2);
    EXPECT_EQ(plan.device_slots, std::min<int64_t>(2, layers));
    EXPECT_EQ(plan.host_slots, leave);
    EXPECT_EQ(plan.leaving, 4 * leave);
    EXPECT_EQ(plan.arriving, 4 * leave);
  }
}

// On the first stage nearly everything is offloaded, and all but the first copies in overlap with a
// pass.
TEST(OffloadPlan, CopiesInBeginAPassBeforeTheyAreNeeded) {
  for (const Pipeline pipeline : {Pipeline::one_f_one_b, Pipeline::zero_bubble}) {
    const OffloadPlan plan =
        offload_plan(pipelined(24, 16, {.pp = 4, .pipeline = pipeline}), 1, false, false);
    EXPECT_EQ(plan.device_slots, 3);
    EXPECT_GE(plan.leaving, 16 * 6 - 6);
    for (const OffloadArrival& arrival : plan.arrivals) EXPECT_LT(arrival.after, arrival.use - 1);
  }
}

// Both sides together hold what one held before, plus the device slots: no slot too many.
TEST(OffloadPlan, MemoryMovesToTheHost) {
  for (const Pipeline pipeline : {Pipeline::one_f_one_b, Pipeline::zero_bubble}) {
    const Recipe recipe = pipelined(24, 16, {.pp = 4, .pipeline = pipeline});
    Recipe kept = recipe;
    kept.offload = {};
    for (int64_t stage = 0; stage < 4; ++stage) {
      const MemoryMap map = memory_map(recipe, tutti_profile(), stage);
      const MemoryMap plain = memory_map(kept, tutti_profile(), stage);
      const OffloadPlan plan = offload_plan(recipe, stage, false, false);
      const SlotPlan& block = plain.arena("activations").slot("block");
      EXPECT_EQ(map.arena("activations").slot("block").repeats, plan.device_slots);
      EXPECT_EQ(map.arena("offloaded_activations").slot("block").repeats, plan.host_slots);
      EXPECT_LE(plan.device_slots + plan.host_slots, block.repeats + plan.device_slots);
      EXPECT_GE(plan.device_slots + plan.host_slots, block.repeats);
      const int64_t receive =
          stage == 0 ? 0
                     : map.arena("workspace").slot("boundary").repeats *
                           map.arena("workspace").slot("boundary").tensor("receive").bytes;
      EXPECT_EQ(map.total_bytes(), plain.total_bytes() + receive -
                                       (block.repeats - plan.device_slots) * block.stride_bytes);
      const OffloadTraffic traffic = offload_traffic(recipe, map, stage);
      EXPECT_EQ(traffic.activations_out, plan.leaving * block.stride_bytes);
      EXPECT_EQ(traffic.activations_in, plan.arriving * block.stride_bytes);
      EXPECT_GE(traffic.activations_in, traffic.activations_out);
    }
  }
}

}  // namespace
}  // namespace tutti::spec
