// Trains small recipes on a mesh whose ranks are threads of this process, and compares what they
// compute with what one rank alone does.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/parallel/ranks.h"
#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/step/trainer.h"
#include "tutti/train/testing/test_support.h"

namespace tutti::train::testing {

// `recipe` on `mesh`: twelve sequences of seven tokens a step, in micro-batches of one or two,
// unless a test chooses its own batch afterwards.
spec::Recipe recipe_on(spec::Recipe recipe, const spec::Mesh& mesh);

// "dp 2 tp 2 zero 1", "1 rank".
std::string text_of(const spec::Mesh& mesh);

// The micro-batches of a data parallel rank, of the same samples whatever the mesh: every rank with
// this dp coordinate reads the same whole sequences.
class RankBatches {
 public:
  RankBatches(const spec::Recipe& recipe, int64_t dp_rank);
  BatchSource step(int64_t step);

 private:
  BatchView next();

  spec::Recipe recipe_;
  RandomBatches batches_;
  int64_t first_;
  int64_t next_ = 0;
  std::vector<int32_t> tokens_, targets_;
};

using Tensors = std::map<std::string, std::vector<float>>;

// Puts a rank's boxes into whole tensors; NaN where no rank has been yet. Returns in how many
// elements it differs from ranks that hold the same.
int64_t gather(Trainer& trainer, const std::vector<StateTensor>& boxes, Tensors& out);

struct Training {
  Tensors gradients;           // of the first step
  std::vector<double> losses;  // of all
  std::vector<double> norms;
  std::vector<telemetry::Routing> routing;  // of a model with experts
  Tensors state;                            // after them
  int64_t disagreements = 0;                // between ranks, in either
};

// What goes wrong on purpose: changes the groups or the source of a rank before it trains.
struct Sabotage {
  std::function<void(parallel::Ranks&)> ranks;
  std::function<int64_t(const parallel::Ranks&)>
      samples_of;  // dp coordinate whose samples it reads
};

// Gradients of the first step, then `steps` steps. The recipe as recipe_on makes it. `prepare` is
// called with every rank's trainer before it starts.
using Prepare = std::function<void(Trainer&)>;
Training train_on(const spec::Recipe& recipe, int64_t steps, const Sabotage& sabotage = {},
                  const Prepare& prepare = {});
Training train(const spec::Recipe& base, const spec::Mesh& mesh, int64_t steps,
               const Sabotage& sabotage = {}, const Prepare& prepare = {});

// Runs `body` on every rank of the recipe's mesh; alone in this thread.
void on_ranks(const spec::Recipe& recipe, const std::function<void(const parallel::Ranks&)>& body);

// `steps` steps, saved by all ranks together as a checkpoint of `files`; returns the state.
Tensors train_and_save(const spec::Recipe& recipe, int64_t steps, FileSystem& files,
                       const Prepare& prepare = {});

// Loads that checkpoint, after `steps` steps, on another mesh: every element is that of `saved`, to
// the bit. Then continues: losses are within 1e-5 of the rest of `losses`.
void load_and_go_on(const spec::Recipe& recipe, int64_t steps, FileSystem& files,
                    const Tensors& saved, const std::vector<double>& losses,
                    const Prepare& prepare = {});

// The largest of |difference| / max(|g|, 1e-3 |G| / sqrt(tensors)), per tensor.
double gradient_error(const Tensors& actual, const Tensors& expected);

// No disagreement; gradients within 1e-5 by that rule, losses within 1e-5 relative, norms within
// 1e-3.
void expect_same(const Training& together, const Training& alone);

}  // namespace tutti::train::testing
