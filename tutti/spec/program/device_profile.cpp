#include <algorithm>

#include "tutti/spec/memory/memory.h"
#include "tutti/spec/program/profile.h"

namespace tutti::spec {
namespace {

constexpr int64_t kRowMultiple = 64;

// The rest is for memory outside any map: the device's context, code and workspaces of libraries.
int64_t usable_bytes(int64_t device_bytes) { return device_bytes / 16 * 15; }

// Of the last pipeline rank, which holds the loss.
int64_t bytes_with(const Recipe& recipe, Profile& profile, int64_t chunk_rows) {
  profile.loss_chunk_rows = chunk_rows;
  return memory_map(recipe, profile, recipe.parallel.pp - 1).total_bytes();
}

// Largest number of logits' rows with which the map fits. The map is convex in the rows, a sum of
// maxima of linear functions, so that linear interpolation never underestimates it.
int64_t fitting_rows(const Recipe& recipe, Profile profile, int64_t usable) {
  const int64_t all = local_sizes(recipe, profile).tokens;
  const int64_t fewest = std::min(all, kFewestLossRows);
  const int64_t most_bytes = bytes_with(recipe, profile, all);
  if (most_bytes <= usable) return all;
  const int64_t least_bytes = bytes_with(recipe, profile, fewest);
  if (least_bytes >= usable) return fewest;
  const double share =
      static_cast<double>(usable - least_bytes) / static_cast<double>(most_bytes - least_bytes);
  const auto more = static_cast<int64_t>(share * static_cast<double>(all - fewest));
  const int64_t rows = fewest + more / kRowMultiple * kRowMultiple;
  // Chunks of about equal size, none of them small.
  const int64_t chunks = (all + rows - 1) / rows;
  const int64_t each = (all + chunks - 1) / chunks;
  return std::min(rows, (each + kRowMultiple - 1) / kRowMultiple * kRowMultiple);
}

// Whether every rank has memory for them besides the fewest rows of logits.
bool keeps_quantized_weights(const Recipe& recipe, Profile profile, int64_t device_bytes) {
  if (recipe.precision != Precision::fp8 || recipe.parallel.zero == 3 ||
      recipe.model.moe.experts > 0) {
    return false;
  }
  if (device_bytes == 0) return true;
  profile.quantizes_weights_once = true;
  profile.loss_chunk_rows = kFewestLossRows;
  for (int64_t stage = 0; stage < recipe.parallel.pp; ++stage) {
    if (memory_map(recipe, profile, stage).total_bytes() > usable_bytes(device_bytes)) return false;
  }
  return true;
}

// A word for the largest magnitude (amax) of each tensor that products quantize, written by the
// kernel that produces or first quantizes it and read by the others.
void add_magnitudes(Profile& profile, bool gradients) {
  const auto add = [](std::vector<SavedTensor>& list, const char* name) {
    list.push_back({name, Rows::single, Width::one, Element::f32, Split::none, kAlways});
  };
  for (const char* input : {"norm1.amax", "attention.amax", "norm2.amax", "mlp.amax"}) {
    add(profile.block, input);
  }
  if (!gradients) return;
  for (const char* gradient :
       {"d_branch.0.amax", "d_branch.1.amax", "d_branch_attention.amax", "d_pre.amax"}) {
    add(profile.workspace, gradient);
  }
}

}  // namespace

Profile tutti_profile_with(const Recipe& recipe, bool quantizes_weights_once,
                           int64_t loss_chunk_rows) {
  Profile profile = tutti_profile();
  if (recipe.device == "cpu") return profile;
  const bool together = recipe.parallel.pipeline != Pipeline::zero_bubble;
  profile.fuses_norm_gradients = together;
  // Block scales differ between the two copies; frozen weights have no second product.
  profile.quantizes_gradients_once =
      together && recipe.precision == Precision::fp8 && !recipe.lora.enabled();
  if (recipe.precision == Precision::fp8) add_magnitudes(profile, together);
  profile.loss_compute_logits = true;
  profile.loss_chunk_bytes = 0;
  profile.quantizes_weights_once = quantizes_weights_once;
  profile.loss_chunk_rows = loss_chunk_rows;
  return profile;
}

Profile tutti_profile_on(const Recipe& recipe, int64_t device_bytes) {
  Profile profile = tutti_profile_with(recipe, false, 0);
  if (recipe.device == "cpu") return profile;
  profile.quantizes_weights_once = keeps_quantized_weights(recipe, profile, device_bytes);
  profile.loss_chunk_rows =
      device_bytes == 0 ? 0 : fitting_rows(recipe, profile, usable_bytes(device_bytes));
  return profile;
}

}  // namespace tutti::spec
