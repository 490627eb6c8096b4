#include "tutti/train/testing/layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tutti/checkpoint/store/joint_save.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/comm/world/thread_world.h"
#include "tutti/train/session/run_state.h"

namespace tutti::train::testing {
namespace {

spec::Recipe one_by_one(spec::Recipe recipe) {
  recipe.batch.micro = 1;
  return recipe;
}

void train_rank(const spec::Recipe& recipe, parallel::Ranks ranks, int64_t steps, std::mutex& mutex,
                Training& out, const Sabotage& sabotage, const Prepare& prepare) {
  const int64_t samples_of = sabotage.samples_of ? sabotage.samples_of(ranks) : ranks.at.dp;
  if (sabotage.ranks) sabotage.ranks(ranks);
  Trainer trainer(recipe, ranks);
  if (prepare) prepare(trainer);
  trainer.initialize();
  RankBatches batches(recipe, samples_of);
  const double first = trainer.gradients(batches.step(0));
  {
    const std::lock_guard lock(mutex);
    out.disagreements += gather(trainer, trainer.state().gradients(), out.gradients);
  }
  EXPECT_TRUE(std::isfinite(first));
  for (int64_t step = 0; step < steps; ++step) {
    const StepResult result =
        trainer.step(batches.step(step), recipe.optimizer.learning_rate, step + 1);
    EXPECT_EQ(result.targets, recipe.batch.global * recipe.batch.sequence);
    if (ranks.world != nullptr && ranks.world->rank() > 0) continue;
    out.losses.push_back(result.loss);
    out.norms.push_back(result.gradient_norm);
    if (result.routing) out.routing.push_back(*result.routing);
  }
  const std::lock_guard lock(mutex);
  out.disagreements += gather(trainer, trainer.state().tensors(), out.state);
}

double norm_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float x : values) sum += static_cast<double>(x) * static_cast<double>(x);
  return std::sqrt(sum);
}

}  // namespace

spec::Recipe recipe_on(spec::Recipe recipe, const spec::Mesh& mesh) {
  recipe.parallel = mesh;
  recipe.threads = 1;
  recipe.batch = {12, 12 / mesh.dp % 2 == 0 ? 2 : 1, 7};
  return recipe;
}

std::string text_of(const spec::Mesh& mesh) {
  std::string text;
  const auto add = [&](const char* name, int64_t size, int64_t usual) {
    if (size != usual) text += fmt::format("{}{} {}", text.empty() ? "" : " ", name, size);
  };
  add("dp", mesh.dp, 1);
  add("tp", mesh.tp, 1);
  add("pp", mesh.pp, 1);
  add("vpp", mesh.vpp, 1);
  add("cp", mesh.cp, 1);
  add("ep", mesh.ep, 1);
  add("zero", mesh.zero, 0);
  if (mesh.pipeline == spec::Pipeline::zero_bubble) text += " zero-bubble";
  if (mesh.pipeline == spec::Pipeline::gpipe) text += " gpipe";
  return text.empty() ? "1 rank" : text;
}

RankBatches::RankBatches(const spec::Recipe& recipe, int64_t dp_rank)
    : recipe_(recipe),
      batches_(one_by_one(recipe), 1),
      first_(dp_rank * (recipe.batch.global / recipe.parallel.dp)) {}

BatchSource RankBatches::step(int64_t step) {
  next_ = step * recipe_.batch.global + first_;
  return [this] { return next(); };
}

BatchView RankBatches::next() {
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

int64_t gather(Trainer& trainer, const std::vector<StateTensor>& boxes, Tensors& out) {
  int64_t disagreements = 0;
  for (const StateTensor& box : boxes) {
    int64_t whole = 1;
    for (const int64_t size : box.global_shape) whole *= size;
    std::vector<float>& values = out[box.name];
    values.resize(static_cast<size_t>(whole), std::nanf(""));
    int64_t elements = 1;
    for (const int64_t size : box.shape) elements *= size;
    std::vector<float> mine(static_cast<size_t>(elements));
    if (box.dtype == DType::bf16) {
      std::vector<bf16> bits(mine.size());
      trainer.state().fetch(box, bits.data());
      std::transform(bits.begin(), bits.end(), mine.begin(), to_f32);
    } else {
      trainer.state().fetch(box, mine.data());
    }
    for (int64_t i = 0; i < elements; ++i) {
      int64_t index = 0;
      int64_t rest = i;
      int64_t stride = elements;
      for (size_t d = 0; d < box.shape.size(); ++d) {
        stride /= box.shape[d];
        index = index * box.global_shape[d] + box.offset[d] + rest / stride;
        rest %= stride;
      }
      float& known = values.at(static_cast<size_t>(index));
      const float value = mine[static_cast<size_t>(i)];
      if (!std::isnan(known) && known != value) ++disagreements;
      known = value;
    }
  }
  return disagreements;
}

void on_ranks(const spec::Recipe& recipe, const std::function<void(const parallel::Ranks&)>& body) {
  if (recipe.parallel.world() == 1) return body({});
  comm::run_threads(recipe.parallel, [&](comm::World& world, engine::Stream&) {
    body(parallel::ranks_of(world, recipe.model.kv_heads));
  });
}

Training train_on(const spec::Recipe& recipe, int64_t steps, const Sabotage& sabotage,
                  const Prepare& prepare) {
  Training out;
  std::mutex mutex;
  on_ranks(recipe, [&](const parallel::Ranks& ranks) {
    train_rank(recipe, ranks, steps, mutex, out, sabotage, prepare);
  });
  return out;
}

Training train(const spec::Recipe& base, const spec::Mesh& mesh, int64_t steps,
               const Sabotage& sabotage, const Prepare& prepare) {
  return train_on(recipe_on(base, mesh), steps, sabotage, prepare);
}

Tensors train_and_save(const spec::Recipe& recipe, int64_t steps, FileSystem& files,
                       const Prepare& prepare) {
  Tensors saved;
  std::mutex mutex;
  on_ranks(recipe, [&](const parallel::Ranks& ranks) {
    Trainer trainer(recipe, ranks);
    if (prepare) prepare(trainer);
    trainer.initialize();
    RankBatches batches(recipe, ranks.at.dp);
    for (int64_t step = 0; step < steps; ++step) {
      trainer.step(batches.step(step), recipe.optimizer.learning_rate, step + 1);
    }
    RunState state;
    state.step = steps;
    const int rank = ranks.world == nullptr ? 0 : ranks.world->rank();
    checkpoint::write_joint_checkpoint(files, "run", checkpoint_tensors(trainer),
                                       to_checkpoint_state(state, recipe), {},
                                       {rank, static_cast<int>(recipe.parallel.world()), "a", 60});
    const std::lock_guard lock(mutex);
    EXPECT_EQ(gather(trainer, trainer.state().tensors(), saved), 0);
  });
  return saved;
}

void load_and_go_on(const spec::Recipe& recipe, int64_t steps, FileSystem& files,
                    const Tensors& saved, const std::vector<double>& losses,
                    const Prepare& prepare) {
  Tensors loaded;
  std::mutex mutex;
  on_ranks(recipe, [&](const parallel::Ranks& ranks) {
    Trainer trainer(recipe, ranks);
    if (prepare) prepare(trainer);
    trainer.initialize();
    checkpoint::Reader reader(files, fmt::format("run/step-{:08}", steps));
    load_state(reader, trainer);
    {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(gather(trainer, trainer.state().tensors(), loaded), 0);
    }
    RankBatches batches(recipe, ranks.at.dp);
    for (int64_t step = steps; step < static_cast<int64_t>(losses.size()); ++step) {
      const StepResult result =
          trainer.step(batches.step(step), recipe.optimizer.learning_rate, step + 1);
      EXPECT_NEAR(result.loss / losses[static_cast<size_t>(step)], 1, 1e-5) << "step " << step;
    }
  });
  EXPECT_EQ(loaded, saved);
}

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
    if (!(error <= worst)) worst = error;  // also when it is not a number
  }
  return worst;
}

void expect_same(const Training& together, const Training& alone) {
  EXPECT_EQ(together.disagreements, 0);
  EXPECT_LT(gradient_error(together.gradients, alone.gradients), 1e-5);
  ASSERT_EQ(together.losses.size(), alone.losses.size());
  for (size_t i = 0; i < alone.losses.size(); ++i) {
    EXPECT_NEAR(together.losses[i] / alone.losses[i], 1, 1e-5) << "step " << i;
    EXPECT_NEAR(together.norms[i] / alone.norms[i], 1, 1e-3) << "step " << i;
  }
  ASSERT_EQ(together.routing.size(), alone.routing.size());
  for (size_t i = 0; i < alone.routing.size(); ++i) {
    const telemetry::Routing &a = together.routing[i], &b = alone.routing[i];
    EXPECT_NEAR(a.balance_loss / b.balance_loss, 1, 1e-5) << "step " << i;
    EXPECT_NEAR(a.z_loss / b.z_loss, 1, 1e-4) << "step " << i;
    EXPECT_FLOAT_EQ(static_cast<float>(a.load_max_over_mean),
                    static_cast<float>(b.load_max_over_mean))
        << "step " << i;
    EXPECT_NEAR(a.dropped_share, b.dropped_share, 1e-6) << "step " << i;
  }
}

}  // namespace tutti::train::testing
