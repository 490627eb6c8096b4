#include "tutti/spec/recipe/sizes.h"

#include <utility>

#include "tutti/spec/recipe/checks.h"

namespace tutti::spec {
namespace {

void check_between(const char* key, int64_t value, int64_t least, int64_t most) {
  if (value < least || value > most) {
    reject("{}: {} is out of range; accepted: {} to {}", key, value, least, most);
  }
}

void check_mesh(const Mesh& mesh) {
  int64_t ranks = 1;
  for (const auto& [key, size] : {std::pair{"parallel.tp", mesh.tp},
                                  {"parallel.cp", mesh.cp},
                                  {"parallel.dp", mesh.dp},
                                  {"parallel.pp", mesh.pp}}) {
    check_between(key, size, 1, kMostRanks);
    if (size > kMostRanks / ranks) {
      reject("{}: {} makes a mesh of more than {} ranks; write less", key, size, kMostRanks);
    }
    ranks *= size;
  }
  check_between("parallel.vpp", mesh.vpp, 1, kMostRanks);
  check_between("parallel.ep", mesh.ep, 1, kMostRanks);
}

void check_batch(const BatchConfig& batch) {
  check_between("batch.global", batch.global, 1, kMostSequences);
  check_between("batch.micro", batch.micro, 1, kMostSequences);
  check_between("batch.sequence", batch.sequence, 1, kMostRows);
  if (batch.micro > kMostRows / batch.sequence) {
    reject("batch.micro: {} sequences of {} tokens are more than {} rows; write less", batch.micro,
           batch.sequence, kMostRows);
  }
}

}  // namespace

void check_sizes(const Recipe& recipe) {
  check_mesh(recipe.parallel);
  check_batch(recipe.batch);
  constexpr int64_t kMostTokens = int64_t{1} << 62;
  const int64_t most_steps = kMostTokens / (recipe.batch.global * recipe.batch.sequence);
  check_between("train.steps", recipe.train.steps, 1, most_steps);
  check_between("schedule.start_step", recipe.schedule.start_step, 0, most_steps);
}

}  // namespace tutti::spec
