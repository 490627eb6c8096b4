// What tensor parallel ranks allocate and do is what spec describes.
#include <gtest/gtest.h>

#include <array>
#include <map>
#include <mutex>
#include <string>
#include <tuple>

#include "tutti/engine/recorder.h"
#include "tutti/spec/memory/memory.h"
#include "tutti/spec/program/program.h"
#include "tutti/train/testing/tensor_parallel_recipes.h"

namespace tutti::train {
namespace {

using namespace testing;

// Weights, gradients, master and moments are divided by tp, but for what all ranks hold; so are the
// activations that a layer keeps (Korthikanti et al. 2022, table 2: tensor and sequence parallel).
TEST(TensorParallel, MemoryIsDividedByTheRanks) {
  for (const spec::Recipe& base : {divided_gpt(), divided_llama()}) {
    for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
      spec::Recipe recipe = divided(base, {});
      recipe.precision = precision;
      const spec::MemoryMap alone = spec::memory_map(recipe);
      for (const int64_t tp : {2, 4}) {
        recipe.parallel.tp = tp;
        const spec::MemoryMap map = spec::memory_map(recipe);
        const bool copies = tp > recipe.model.kv_heads;
        const auto bytes = [](const spec::MemoryMap& of, const char* slot) {
          return of.arena("activations").slot(slot).tensor_bytes();
        };
        // But for the gradient of what the head reads, which is of all rows.
        const auto head = [&](const spec::MemoryMap& of) {
          const spec::SlotPlan& slot = of.arena("activations").slot("head");
          return slot.tensor_bytes() - slot.tensor("d_final").bytes;
        };
        EXPECT_EQ(head(map) * tp, head(alone));
        if (copies) {  // which hold the keys and values of 4 ranks instead of 2
          EXPECT_GT(bytes(map, "block") * tp, bytes(alone, "block"));
        } else {
          EXPECT_EQ(bytes(map, "block") * tp, bytes(alone, "block"));
        }
        on_ranks(recipe, [&](const parallel::Ranks& ranks) {
          const Trainer trainer(recipe, ranks);
          for (const spec::ArenaPlan& plan : map.arenas) {
            EXPECT_EQ(trainer.memory().arena(plan.name).bytes(), plan.bytes) << plan.name;
          }
          int64_t elements = 0;
          for (const spec::PlacedParam& placed : trainer.layout().params) {
            elements += spec::align_elements(placed.shard.count());
            const bool whole = placed.param.shard_dim < 0;
            if (!whole && placed.param.kv_heads % tp == 0) {
              EXPECT_GE(placed.shard.count() * tp, placed.param.count()) << placed.name;
              EXPECT_LE(placed.shard.count() * tp, placed.param.count() + 64 * tp * 24)
                  << placed.name;  // padding of the vocabulary
            }
          }
          for (const char* flat : {"gradients", "moment1", "moment2"}) {
            EXPECT_EQ(trainer.memory().arena(flat).bytes(), 4 * elements) << flat;
          }
          const int64_t weights = dtype_bytes(spec::compute_type(precision)) * elements;
          EXPECT_EQ(trainer.memory().arena("weights").bytes(), (weights + 255) / 256 * 256);
        });
      }
    }
  }
}

// What a step did or should do.
using Key = std::tuple<std::string, std::array<int64_t, 6>, double, double>;
struct Work {
  std::map<Key, int64_t> calls;
  std::map<int64_t, double> summed;  // bytes of all_reduce, which may come in pieces, by group size
  double normed = 0;                 // elements in the gradient's norm, likewise

  // Of tensor parallel ranks the first alone adds the biases of row-parallel projections, so the
  // bytes of the others' products differ.
  void add(const std::string& name, const std::array<int64_t, 6>& dims, double flops, double bytes,
           bool without_biases) {
    if (name == "all_reduce") {
      summed[dims[1]] += bytes;
    } else if (name == "squared_norm") {
      normed += static_cast<double>(dims[0]);
    } else {
      ++calls[{name, dims, flops, without_biases && name == "gemm" ? 0 : bytes}];
    }
  }
};

Work described(const spec::Recipe& recipe, bool without_biases) {
  Work work;
  const spec::Program program = spec::make_program(recipe, spec::tutti_profile());
  for (const spec::Op& op : spec::step_operations(program, spec::make_schedule(recipe), 0)) {
    work.add(op.name, op.dims, op.flops, op.bytes, without_biases);
  }
  return work;
}

void expect_equal(const std::map<Key, int64_t>& actual, const std::map<Key, int64_t>& expected) {
  const auto text = [](const Key& key) {
    const auto& [name, dims, flops, bytes] = key;
    return fmt::format("{} {} flops {} bytes {}", name, fmt::join(dims, "x"), flops, bytes);
  };
  for (const auto& [key, count] : expected) {
    const auto found = actual.find(key);
    EXPECT_EQ(found == actual.end() ? 0 : found->second, count) << "described: " << text(key);
  }
  for (const auto& [key, count] : actual) {
    EXPECT_TRUE(expected.count(key) > 0) << "executed " << count << " times: " << text(key);
  }
}

TEST(TensorParallel, RecordedStepEqualsTheDescription) {
  for (const spec::Recipe& base :
       {divided_gpt(), divided_gpt(0.1), divided_llama(), divided_gemma(), divided_latent(),
        with_adapters(divided_gpt(), 0.1), with_adapters(divided_llama(), 0)}) {
    for (const auto mode : {spec::RecomputeMode::none, spec::RecomputeMode::full}) {
      for (const auto precision : {spec::Precision::f32, spec::Precision::bf16}) {
        for (const int64_t tp : {2, 4}) {
          spec::Recipe recipe = divided(base, {.tp = tp});
          recipe.precision = precision;
          recipe.recompute.mode = mode;
          SCOPED_TRACE(fmt::format("{} tp {} {}", recipe.model.name, tp,
                                   precision == spec::Precision::f32 ? "f32" : "bf16"));
          std::mutex mutex;
          double normed = 0;
          on_ranks(recipe, [&](const parallel::Ranks& ranks) {
            Trainer trainer(recipe, ranks);
            trainer.initialize();
            RankBatches batches(recipe, 0);
            engine::Recorder recorder;
            trainer.stream().set_recorder(&recorder);
            trainer.step(batches.step(0), 1e-3, 1);
            trainer.stream().set_recorder(nullptr);
            const bool without_biases = ranks.at.tp > 0;
            Work actual;
            for (const engine::OpRecord& record : recorder.records()) {
              actual.add(record.op, record.dims, record.flops, record.bytes, without_biases);
            }
            const Work expected = described(recipe, without_biases);
            const std::lock_guard lock(mutex);
            EXPECT_EQ(actual.summed, expected.summed);
            EXPECT_LE(actual.normed, expected.normed);
            normed += actual.normed;
            expect_equal(actual.calls, expected.calls);
          });
          // Every parameter counts once.
          EXPECT_EQ(static_cast<int64_t>(normed),
                    spec::param_table(recipe.model, recipe.lora).trainable_count());
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::train
