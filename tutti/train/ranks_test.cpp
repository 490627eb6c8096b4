// Several ranks train as one: gradients, losses and checkpoints do not depend on the mesh. The
// ranks are threads of this process.
#include "tutti/parallel/ranks.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/base/memory_file.h"
#include "tutti/checkpoint/joint_save.h"
#include "tutti/checkpoint/reader.h"
#include "tutti/comm/thread_world.h"
#include "tutti/train/run_state.h"
#include "tutti/train/test_support.h"

namespace tutti::train {
namespace {

using testing::adapted;
using testing::gpt_recipe;
using testing::llama_recipe;
using testing::RandomBatches;

// Twelve sequences a step, in micro-batches of one or two.
spec::Recipe recipe_on(spec::Recipe recipe, const spec::Mesh& mesh) {
  recipe.parallel = mesh;
  recipe.threads = 1;
  recipe.batch = {12, 12 / mesh.dp % 2 == 0 ? 2 : 1, 7};
  return recipe;
}

// Micro-batches of this rank, of the same samples whatever the mesh.
class RankBatches {
 public:
  RankBatches(const spec::Recipe& recipe, int64_t dp_rank)
      : recipe_(recipe), batches_(one_by_one(recipe), 1), first_(dp_rank * samples()) {}

  BatchSource step(int64_t step) {
    next_ = step * recipe_.batch.global + first_;
    return [this] { return next(); };
  }

 private:
  static spec::Recipe one_by_one(spec::Recipe recipe) {
    recipe.batch.micro = 1;
    return recipe;
  }
  int64_t samples() const { return recipe_.batch.global / recipe_.parallel.dp; }
  BatchView next() {
    tokens_.clear();
    targets_.clear();
    const int64_t first_row = next_ * recipe_.batch.sequence;
    for (int64_t i = 0; i < recipe_.batch.micro; ++i) {
      batches_.seek(next_++);
      const BatchView view = batches_.next();
      tokens_.insert(tokens_.end(), view.tokens, view.tokens + recipe_.batch.sequence);
      targets_.insert(targets_.end(), view.targets, view.targets + recipe_.batch.sequence);
    }
    return {tokens_.data(), targets_.data(), first_row};
  }

  spec::Recipe recipe_;
  RandomBatches batches_;
  int64_t first_;
  int64_t next_ = 0;
  std::vector<int32_t> tokens_, targets_;
};

using Tensors = std::map<std::string, std::vector<float>>;

// Puts a rank's boxes into whole tensors; NaN where no rank has been yet.
void gather(const std::vector<StateTensor>& boxes, Tensors& out) {
  for (const StateTensor& box : boxes) {
    int64_t whole = 1;
    for (const int64_t size : box.global_shape) whole *= size;
    std::vector<float>& values = out[box.name];
    values.resize(static_cast<size_t>(whole), std::nanf(""));
    int64_t elements = 1;
    for (const int64_t size : box.shape) elements *= size;
    for (int64_t i = 0; i < elements; ++i) {
      int64_t index = 0;
      int64_t rest = i;
      int64_t stride = elements;
      for (size_t d = 0; d < box.shape.size(); ++d) {
        stride /= box.shape[d];
        index = index * box.global_shape[d] + box.offset[d] + rest / stride;
        rest %= stride;
      }
      values.at(static_cast<size_t>(index)) = static_cast<const float*>(box.data)[i];
    }
  }
}

struct Training {
  Tensors gradients;           // of the first step
  std::vector<double> losses;  // of all
  std::vector<double> norms;
  Tensors state;  // after them
};

// What goes wrong on purpose.
enum class Bug { none, no_all_reduce, one_rank_repeats_samples };

void train_rank(const spec::Recipe& recipe, const parallel::Ranks& ranks, int64_t steps,
                std::mutex& mutex, Training& out, Bug bug) {
  parallel::Ranks groups = ranks;
  if (bug == Bug::no_all_reduce) groups.replicas = nullptr;
  Trainer trainer(recipe, groups);
  trainer.initialize();
  const bool repeats = bug == Bug::one_rank_repeats_samples && ranks.at.dp == 1;
  RankBatches batches(recipe, repeats ? 0 : ranks.at.dp);
  const double first = trainer.gradients(batches.step(0));
  {
    const std::lock_guard lock(mutex);
    gather(trainer.gradient_tensors(), out.gradients);
  }
  EXPECT_TRUE(std::isfinite(first));
  for (int64_t step = 0; step < steps; ++step) {
    const StepResult result = trainer.step(batches.step(step), 1e-2, step + 1);
    EXPECT_EQ(result.targets, recipe.batch.global * recipe.batch.sequence);
    if (ranks.world != nullptr && ranks.world->rank() > 0) continue;
    out.losses.push_back(result.loss);
    out.norms.push_back(result.gradient_norm);
  }
  const std::lock_guard lock(mutex);
  gather(trainer.state(), out.state);
}

Training train(const spec::Recipe& base, const spec::Mesh& mesh, int64_t steps,
               Bug bug = Bug::none) {
  const spec::Recipe recipe = recipe_on(base, mesh);
  Training out;
  std::mutex mutex;
  if (mesh.world() == 1) {
    train_rank(recipe, {}, steps, mutex, out, bug);
    return out;
  }
  comm::run_threads(mesh, [&](comm::World& world, engine::Stream&) {
    train_rank(recipe, parallel::ranks_of(world), steps, mutex, out, bug);
  });
  return out;
}

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

// The largest of |difference| / max(|g|, 1e-3 |G| / sqrt(tensors)), per tensor.
double gradient_error(const Tensors& actual, const Tensors& expected) {
  double total = 0;
  for (const auto& [name, values] : expected) total += std::pow(norm_of(values), 2);
  const double floor = 1e-3 * std::sqrt(total / static_cast<double>(expected.size()));
  double worst = 0;
  for (const auto& [name, values] : expected) {
    const std::vector<float>& found = actual.at(name);
    std::vector<float> difference(values.size());
    for (size_t i = 0; i < values.size(); ++i) difference[i] = found[i] - values[i];
    const double error = norm_of(difference) / std::max(norm_of(values), floor);
    if (!(error <= worst)) worst = error;  // also when it is no number
  }
  return worst;
}

std::string text_of(const spec::Mesh& mesh) {
  return fmt::format("dp {} zero {}", mesh.dp, mesh.zero);
}

TEST(Ranks, GradientsAndLossesDoNotDependOnTheMesh) {
  spec::Recipe dropped = gpt_recipe();
  dropped.model.dropout = 0.1;
  for (const spec::Recipe& recipe :
       {gpt_recipe(), llama_recipe(), dropped, adapted(gpt_recipe())}) {
    const Training alone = train(recipe, {}, 20);
    for (const spec::Mesh mesh : {spec::Mesh{.dp = 2}, spec::Mesh{.dp = 3, .zero = 1},
                                  spec::Mesh{.dp = 4, .zero = 1}, spec::Mesh{.dp = 6}}) {
      SCOPED_TRACE(
          fmt::format("{} dropout {} {}", recipe.model.name, recipe.model.dropout, text_of(mesh)));
      const Training together = train(recipe, mesh, 20);
      EXPECT_LT(gradient_error(together.gradients, alone.gradients), 1e-5);
      ASSERT_EQ(together.losses.size(), alone.losses.size());
      for (size_t i = 0; i < alone.losses.size(); ++i) {
        EXPECT_NEAR(together.losses[i] / alone.losses[i], 1, 1e-5) << "step " << i;
        EXPECT_NEAR(together.norms[i] / alone.norms[i], 1, 1e-3) << "step " << i;
      }
    }
  }
}

// What the comparison is for: each of these is found.
TEST(Ranks, MistakesAreFound) {
  const Training alone = train(gpt_recipe(), {}, 1);
  for (const Bug bug : {Bug::no_all_reduce, Bug::one_rank_repeats_samples}) {
    const Training together = train(gpt_recipe(), {.dp = 2}, 1, bug);
    EXPECT_GT(gradient_error(together.gradients, alone.gradients), 1e-2);
  }
}

TEST(Ranks, InTheComputeTypeMastersAndMomentsAreSharded) {
  spec::Recipe recipe = llama_recipe();
  recipe.precision = spec::Precision::bf16;
  const Training alone = train(recipe, {}, 10);
  const Training whole = train(recipe, {.dp = 3}, 10);
  const Training sharded = train(recipe, {.dp = 3, .zero = 1}, 10);
  EXPECT_EQ(sharded.losses, whole.losses);  // the same sums in the same order
  EXPECT_EQ(sharded.state, whole.state);
  for (size_t i = 0; i < alone.losses.size(); ++i) {
    EXPECT_NEAR(whole.losses[i] / alone.losses[i], 1, 2e-2) << "step " << i;
  }
}

// Ten steps on one mesh, saved by all ranks together, ten more on another.
TEST(Ranks, ACheckpointOfOneMeshIsContinuedOnAnother) {
  const spec::Recipe base = gpt_recipe();
  const Training undisturbed = train(base, {}, 20);
  for (const auto& [from, to] :
       std::vector<std::pair<spec::Mesh, spec::Mesh>>{{{.dp = 3, .zero = 1}, {.dp = 2, .zero = 1}},
                                                      {{.dp = 2}, {.dp = 6, .zero = 1}},
                                                      {{.dp = 4, .zero = 1}, {}}}) {
    SCOPED_TRACE(text_of(from) + " to " + text_of(to));
    MemoryFileSystem files;
    Tensors saved;
    std::mutex mutex;
    comm::run_threads(from, [&, from = from](comm::World& world, engine::Stream&) {
      const spec::Recipe recipe = recipe_on(base, from);
      const parallel::Ranks ranks = parallel::ranks_of(world);
      Trainer trainer(recipe, ranks);
      trainer.initialize();
      RankBatches batches(recipe, ranks.at.dp);
      for (int64_t step = 0; step < 10; ++step) trainer.step(batches.step(step), 1e-2, step + 1);
      RunState state;
      state.step = 10;
      checkpoint::write_joint_checkpoint(
          files, "run", checkpoint_tensors(trainer), to_checkpoint_state(state, recipe), {},
          {static_cast<int>(world.rank()), static_cast<int>(world.size()), "a", 60});
      const std::lock_guard lock(mutex);
      gather(trainer.state(), saved);
    });
    const auto go_on = [&, to = to](const parallel::Ranks& ranks) {
      const spec::Recipe recipe = recipe_on(base, to);
      Trainer trainer(recipe, ranks);
      trainer.initialize();
      checkpoint::Reader reader(files, "run/step-00000010");
      load_state(reader, trainer);
      Tensors loaded;
      gather(trainer.state(), loaded);
      for (const auto& [name, values] : loaded) {
        for (size_t i = 0; i < values.size(); ++i) {
          if (std::isnan(values[i])) continue;  // another rank's
          ASSERT_EQ(values[i], saved.at(name)[i]) << name << " " << i;
        }
      }
      RankBatches batches(recipe, ranks.at.dp);
      for (int64_t step = 10; step < 20; ++step) {
        const StepResult result = trainer.step(batches.step(step), 1e-2, step + 1);
        EXPECT_NEAR(result.loss / undisturbed.losses[static_cast<size_t>(step)], 1, 1e-5);
      }
    };
    if (to.world() == 1) {
      go_on({});
    } else {
      comm::run_threads(
          to, [&](comm::World& world, engine::Stream&) { go_on(parallel::ranks_of(world)); });
    }
  }
}

}  // namespace
}  // namespace tutti::train
