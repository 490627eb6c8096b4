#include "tutti/spec/mesh/checks.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "tutti/spec/recipe/checks.h"

namespace tutti::spec {
namespace {

// The largest divisor of every member of `sizes` that is not above `wanted`.
int64_t nearest_common_divisor(const std::vector<int64_t>& sizes, int64_t wanted) {
  for (int64_t d = std::min(wanted, *std::min_element(sizes.begin(), sizes.end())); d > 1; --d) {
    if (std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) { return size % d == 0; })) {
      return d;
    }
  }
  return 1;
}

void validate_tensor_parallel(const ModelConfig& model, const Mesh& mesh,
                              const BatchConfig& batch) {
  const int64_t sequence = batch.sequence;
  if (model.heads % mesh.tp != 0) {
    reject("parallel.tp: {} does not divide model.heads {}; nearest that does: {}", mesh.tp,
           model.heads, nearest_common_divisor({model.heads, model.ffn}, mesh.tp));
  }
  if (model.kv_heads % mesh.tp != 0 && mesh.tp % model.kv_heads != 0) {
    reject("parallel.tp: {} neither divides model.kv_heads {} nor is a multiple of it", mesh.tp,
           model.kv_heads);
  }
  if (model.ffn % mesh.tp != 0) {
    reject("parallel.tp: {} does not divide model.ffn {}", mesh.tp, model.ffn);
  }
  if (model.moe.experts > 0 && model.moe.expert_ffn % mesh.tp != 0) {
    reject("parallel.tp: {} does not divide model.moe.expert_ffn {}", mesh.tp,
           model.moe.expert_ffn);
  }
  // Between the projections each rank has an equal block of a micro-batch's rows, which may begin
  // and end within a sequence.
  if (mesh.cp == 1) {
    if (batch.micro * sequence % mesh.tp != 0) {
      reject(
          "parallel.tp: {} does not divide the {} rows of a micro-batch (batch.micro {} * "
          "batch.sequence {}); nearest batch.sequence that it divides: {}",
          mesh.tp, batch.micro * sequence, batch.micro, sequence,
          nearest_multiple(sequence, mesh.tp));
    }
    return;
  }
  // Context parallel ranks take two chunks each, one from either end, so that causal work is equal.
  const int64_t pieces = 2 * mesh.cp * mesh.tp;
  if (sequence % pieces != 0) {
    reject(
        "batch.sequence: {} is not a multiple of {} (parallel.tp * 2 * parallel.cp); nearest: {}",
        sequence, pieces, nearest_multiple(sequence, pieces));
  }
}

}  // namespace

void validate_batch(const Recipe& recipe) {
  const BatchConfig& batch = recipe.batch;
  const Mesh& mesh = recipe.parallel;
  const int64_t unit = batch.micro * mesh.dp;
  if (batch.global % unit != 0) {
    reject("batch.global: {} is not a multiple of batch.micro * parallel.dp = {} * {}; nearest: {}",
           batch.global, batch.micro, mesh.dp, nearest_multiple(batch.global, unit));
  }
  const ModelConfig& model = recipe.model;
  if (model.positions == Positions::learned && batch.sequence > model.context) {
    reject("batch.sequence: {} exceeds model.context {}, the rows of the learned position table",
           batch.sequence, model.context);
  }
}

void validate_mesh(const Recipe& recipe) {
  const Mesh& mesh = recipe.parallel;
  const ModelConfig& model = recipe.model;
  if (mesh.zero < 0 || mesh.zero > 3) {
    reject("parallel.zero: {} is out of range; accepted: 0 to 3", mesh.zero);
  }
  if (mesh.virtual_stages() > model.layers) {
    reject("parallel.pp: {} * vpp {} stages exceed model.layers {}", mesh.pp, mesh.vpp,
           model.layers);
  }
  if (mesh.vpp > 1 && mesh.pp == 1) {
    reject("parallel.vpp: {} virtual stages need parallel.pp above 1", mesh.vpp);
  }
  if (mesh.vpp > 1 && mesh.pipeline != Pipeline::one_f_one_b) {
    reject("parallel.vpp: {} virtual stages need parallel.schedule: interleaved", mesh.vpp);
  }
  const int64_t micro_batches = recipe.batch.global / (recipe.batch.micro * mesh.dp);
  if (mesh.vpp > 1 && micro_batches % mesh.pp != 0) {
    reject(
        "batch.global: {} gives {} micro-batches per rank, but the interleaved schedule needs a "
        "multiple of parallel.pp {}; nearest: {}",
        recipe.batch.global, micro_batches, mesh.pp,
        nearest_multiple(micro_batches, mesh.pp) * recipe.batch.micro * mesh.dp);
  }
  if (mesh.ep > 1 && model.moe.experts == 0) {
    reject("parallel.ep: {} needs a mixture-of-experts model; write 1", mesh.ep);
  }
  if ((mesh.dp * mesh.cp) % mesh.ep != 0) {
    reject(
        "parallel.ep: {} does not divide parallel.dp * parallel.cp = {}; write parallel.dp: {}, or "
        "leave it out",
        mesh.ep, mesh.dp * mesh.cp, mesh.ep / std::gcd(mesh.ep, mesh.cp));
  }
  if (mesh.expert_room_percent != 0 && mesh.expert_room_percent < 100) {
    reject(
        "parallel.expert_room_percent: {} is below the balanced load; accepted: 0, or 100 and more",
        mesh.expert_room_percent);
  }
  if (model.moe.experts % mesh.ep != 0) {
    reject("parallel.ep: {} does not divide model.moe.experts {}", mesh.ep, model.moe.experts);
  }
  validate_tensor_parallel(model, mesh, recipe.batch);
}

}  // namespace tutti::spec
