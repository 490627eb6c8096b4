#include "tutti/plan/bound.h"

#include <algorithm>
#include <limits>

#include "tutti/base/real.h"
#include "tutti/plan/bound_tables.h"
#include "tutti/spec/schedule/schedule.h"

namespace tutti::plan {
size_t LayoutBounds::KeyHash::operator()(const Key& key) const {
  uint64_t hash = 0x9e3779b97f4a7c15ULL;
  for (const int64_t part : key) {
    hash ^= static_cast<uint64_t>(part);
    hash *= 0xff51afd7ed558ccdULL;
    hash ^= hash >> 32;
  }
  return static_cast<size_t>(hash);
}

LayoutBounds::LayoutBounds(const spec::Recipe& recipe, const spec::Profile& profile,
                           const catalog::System& system, const Constants& constants)
    : recipe_(recipe),
      profile_(profile),
      system_(system),
      constants_(constants),
      dense_layers_(recipe.model.moe.experts > 0
                        ? std::min(recipe.model.moe.first_dense_layers, recipe.model.layers)
                        : recipe.model.layers),
      on_device_(profile.executable && recipe.device != "cpu") {}

LayoutBounds::~LayoutBounds() = default;

Bound LayoutBounds::group(const Layout& group) {
  const spec::Mesh& mesh = group.mesh;
  Bound out;
  const Layers& layer = layers(group, false);
  double model_seconds = layer.model_seconds;
  if (on_device_) model_seconds = std::min(model_seconds, layers(group, true).model_seconds);
  const double at_work =
      std::min(dense_layers_ > 0 ? layer.block_bytes[0] + layer.working_bytes[0]
                                 : std::numeric_limits<double>::infinity(),
               dense_layers_ < recipe_.model.layers ? layer.block_bytes[1] + layer.working_bytes[1]
                                                    : std::numeric_limits<double>::infinity());
  // Neither is on every rank, but both on the mean rank and on the fullest.
  out.bytes = (parameter_bytes(group) / real(mesh.pp) +
               (recipe_.recompute.layers > 0 ? 0 : at_work) + layer.common_bytes) *
              constants_[Constant::memory_reserve_ratio];
  const int64_t micro_batches = recipe_.batch.global / (group.micro * mesh.dp);
  const double work = real(micro_batches) * model_seconds / real(mesh.pp) * (1 - 1e-9);
  out.seconds = work + host_seconds(work, mesh.world(), constants_);
  return out;
}

double LayoutBounds::schedule_seconds(const Layout& layout, const Layers& layer) const {
  const spec::Mesh& mesh = layout.mesh;
  const int64_t micro_batches = recipe_.batch.global / (layout.micro * mesh.dp);
  double work = real(micro_batches) * layer.model_seconds / real(mesh.pp);
  // Zero-bubble schedules put weight gradients into the backward pass.
  if (mesh.pipeline != spec::Pipeline::zero_bubble) {
    double block = std::numeric_limits<double>::infinity();
    for (size_t kind = kBlocks; kind < kKinds; ++kind) {
      const PassSeconds& pass = layer.kind[kind];
      const double all = pass.forward + pass.backward + pass.weight_gradient;
      if (all > 0) block = std::min(block, all);
    }
    const int64_t fewest = recipe_.model.layers / (mesh.pp * mesh.vpp);  // of a virtual stage
    work += real(mesh.pp - 1) / 2 * real(fewest) * block;
  }
  work *= 1 - 1e-9;
  return work + host_seconds(work, mesh.world(), constants_);
}

double LayoutBounds::layout_seconds(const Layout& layout, const Ranks& ranks) {
  const spec::Mesh& mesh = layout.mesh;
  const int64_t micro_batches = recipe_.batch.global / (layout.micro * mesh.dp);
  const Ranks::Traffic& traffic = ranks.traffic[static_cast<size_t>(mesh.zero)];
  const std::vector<PassSeconds>* passes = &passes_;
  const int64_t zero = spec::held_zero(mesh, profile_);
  if (zero >= 2) {
    adjusted_.resize(passes_.size());
    for (size_t g = 0; g < passes_.size(); ++g) {
      adjusted_[g] = with_weight_traffic(passes_[g], zero, traffic.chunk_gather[g],
                                         traffic.chunk_reduce[g], constants_);
    }
    passes = &adjusted_;
  }
  const double pipeline = pipeline_lower_bound(mesh, micro_batches, *passes);

  double data = 0;
  if (zero <= 2) {
    // Of the busiest pipeline rank; among equally busy ones the one with the smallest.
    const auto pp = static_cast<size_t>(mesh.pp);
    const double usable = constants_[Constant::dp_overlap_ratio];
    double most = -1;
    for (size_t r = 0; r < pp; ++r) {
      double forward = 0;
      double backward = 0;
      for (size_t g = r; g < passes->size(); g += pp) {
        const PassSeconds& pass = (*passes)[g];
        forward += pass.forward;
        backward += pass.backward + pass.weight_gradient;
      }
      const double busy = forward + backward;
      if (busy < most * (1 - 1e-9)) continue;
      double own = 0;
      if (zero <= 1) {
        own += exposed_reduce(mesh, profile_, micro_batches, traffic.reduce[r], backward, usable);
      }
      if (zero >= 1) own += exposed_traffic(mesh, traffic.gather[r], forward, usable);
      data = busy > most * (1 + 1e-9) ? own : std::min(data, own);
      most = std::max(most, busy);
    }
  }
  const double work = (pipeline + data + traffic.tied + traffic.update) * (1 - 1e-9);
  return work + host_seconds(work, mesh.world(), constants_);
}

double LayoutBounds::layout_bytes(const Layout& layout, const Layers& layer,
                                  const Ranks& ranks) const {
  const spec::Mesh& mesh = layout.mesh;
  const int64_t micro_batches = recipe_.batch.global / (layout.micro * mesh.dp);
  const bool partly = layout.recompute.layers > 0;
  double most = 0;
  for (const Ranks::Memory& memory : ranks.memory) {
    const double flights = real(spec::peak_in_flight(mesh, micro_batches, memory.stage));
    double bytes = memory.bytes[static_cast<size_t>(mesh.zero)] + layer.common_bytes +
                   flights * (memory.least_dense * layer.block_bytes[0] +
                              memory.least_routed * layer.block_bytes[1]);
    if (memory.dense && !partly) bytes += layer.working_bytes[0];
    if (memory.routed && !partly) bytes += layer.working_bytes[1];
    if (memory.stage == 0) bytes += layer.embedding_bytes * (mesh.vpp == 1 ? flights : 1);
    if (memory.stage == mesh.pp - 1) bytes += layer.last_bytes;
    most = std::max(most, bytes);
  }
  return most * constants_[Constant::memory_reserve_ratio];
}

void LayoutBounds::layouts(const Layout& group, const std::vector<ScheduleChoice>& schedules,
                           const std::vector<int64_t>& zero_stages, double most_bytes,
                           double most_seconds,
                           const std::function<void(const Layout&, const Bound&)>& visit) {
  const double transfer = transfer_seconds(group);
  const double blocked = transfer * (1 - constants_[Constant::pp_overlap_ratio]);
  Layout layout = group;
  for (const ScheduleChoice& choice : schedules) {
    layout.mesh.pipeline = choice.pipeline;
    layout.mesh.vpp = choice.vpp;
    const Layers& layer = layers(group, choice.pipeline == spec::Pipeline::zero_bubble);
    const double least = schedule_seconds(layout, layer);
    if (least > most_seconds) {
      for (const int64_t zero : zero_stages) {
        layout.mesh.zero = zero;
        visit(layout, {least, 0});
      }
      continue;
    }
    bool summed = false;
    for (const int64_t zero : zero_stages) {
      layout.mesh.zero = zero;
      Ranks& rank = ranks(layout);
      const double bytes = layout_bytes(layout, layer, rank);
      if (bytes > most_bytes) {
        visit(layout, {0, bytes});
        continue;
      }
      price(layout, rank);
      if (!summed) {
        summed = true;
        passes_.resize(rank.stages.size());
        for (size_t g = 0; g < passes_.size(); ++g) {
          PassSeconds pass;
          for (const Ranks::Run& run : rank.stages[g]) {
            const PassSeconds& kind = layer.kind[run.kind];
            pass.forward += run.repeats * kind.forward;
            pass.backward += run.repeats * kind.backward;
            pass.weight_gradient += run.repeats * kind.weight_gradient;
          }
          pass.transfer = transfer;
          pass.blocked = blocked;
          passes_[g] = pass;
        }
      }
      visit(layout, {layout_seconds(layout, rank), bytes});
    }
  }
}

}  // namespace tutti::plan
