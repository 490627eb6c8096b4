#include "tutti/plan/simulate.h"

#include <algorithm>

#include "tutti/base/check.h"

namespace tutti::plan {
namespace {

constexpr double kUnset = -1;
constexpr size_t kMostCachedActions = size_t{1} << 22;

}  // namespace

double pipeline_lower_bound(const spec::Mesh& mesh, int64_t micro_batches,
                            const std::vector<PassSeconds>& stages) {
  const auto pp = static_cast<size_t>(mesh.pp);
  const size_t count = stages.size();
  const bool early = mesh.pipeline == spec::Pipeline::zero_bubble;
  const auto times = static_cast<double>(micro_batches);
  double start = 0;  // of the first forward on a rank; from the last rank to the first
  for (size_t g = 0; g + 1 < pp; ++g) start += stages[g].forward + stages[g].transfer;
  double longest = 0;
  double back = 0;  // earliest end of the last gradient that rank r + 1 has to send
  for (size_t r = pp; r-- > 0;) {
    double work = 0;
    for (size_t g = r; g < count; g += pp) {
      const PassSeconds& pass = stages[g];
      const double sends = (g + 1 < count ? 1 : 0) + (g > 0 ? 1 : 0);
      work += pass.forward + pass.backward + pass.weight_gradient + sends * pass.blocked;
    }
    const PassSeconds& own = stages[r];
    // Weight gradients that ZB-H1 executes after the last input gradient of the rank.
    const double left = early ? std::min(times, static_cast<double>(r + 1)) : 0;
    double end = start + times * work - left * own.weight_gradient;
    if (r + 1 < pp) {
      const PassSeconds& next = stages[r + 1];
      const double arrived = back + next.transfer - next.blocked;
      const double last = own.backward + (early ? 0 : own.weight_gradient);
      end = std::max(end, arrived + last + (r > 0 ? own.blocked : 0));
    }
    back = end;
    longest = std::max(longest, end + left * own.weight_gradient);
    if (r > 0) start -= stages[r - 1].forward + stages[r - 1].transfer;
  }
  // Sums in another order than the simulation's differ in their last bits.
  return longest * (1 - 1e-12);
}

const std::vector<std::vector<spec::Action>>& PipelineSimulator::orders(const spec::Mesh& mesh,
                                                                        int64_t micro_batches) {
  for (const CachedOrder& cached : cache_) {
    if (cached.pp == mesh.pp && cached.vpp == mesh.vpp && cached.micro_batches == micro_batches &&
        cached.pipeline == mesh.pipeline) {
      return cached.orders;
    }
  }
  const auto actions = static_cast<size_t>(3 * mesh.virtual_stages() * micro_batches);
  while (!cache_.empty() && cached_actions_ + actions > kMostCachedActions) {
    cached_actions_ -= cache_.front().actions;
    cache_.pop_front();
  }
  cached_actions_ += actions;
  CachedOrder fresh = {mesh.pp, mesh.vpp, micro_batches, mesh.pipeline, actions, {}};
  for (int64_t stage = 0; stage < mesh.pp; ++stage) {
    fresh.orders.push_back(spec::pass_order(mesh, micro_batches, stage));
  }
  cache_.push_back(std::move(fresh));
  return cache_.back().orders;
}

double PipelineSimulator::play(const spec::Mesh& mesh, int64_t micro_batches,
                               const std::vector<PassSeconds>& stages, SimulatedPipeline* out) {
  const auto& order = orders(mesh, micro_batches);
  const int64_t virtual_stages = mesh.virtual_stages();
  const auto slot = [micro_batches](int64_t stage, int64_t micro) {
    return static_cast<size_t>(stage * micro_batches + micro);
  };
  forward_ready_.assign(static_cast<size_t>(virtual_stages * micro_batches), kUnset);
  backward_ready_.assign(static_cast<size_t>(virtual_stages * micro_batches), kUnset);
  clock_.assign(static_cast<size_t>(mesh.pp), 0);
  next_.assign(static_cast<size_t>(mesh.pp), 0);
  for (int64_t m = 0; m < micro_batches; ++m) forward_ready_[slot(0, m)] = 0;

  const bool early = mesh.pipeline == spec::Pipeline::zero_bubble;
  size_t left = static_cast<size_t>(3 * virtual_stages * micro_batches);
  while (left > 0) {
    const size_t before = left;
    for (int64_t rank = 0; rank < mesh.pp; ++rank) {
      const auto& actions = order[static_cast<size_t>(rank)];
      size_t& at = next_[static_cast<size_t>(rank)];
      double& clock = clock_[static_cast<size_t>(rank)];
      for (; at < actions.size(); ++at, --left) {
        const spec::Action& action = actions[at];
        const int64_t g = action.chunk * mesh.pp + rank;
        const PassSeconds& pass = stages[static_cast<size_t>(g)];
        double start = clock;
        double end = clock;
        if (action.kind == spec::ActionKind::forward) {
          const double ready = forward_ready_[slot(g, action.micro)];
          if (ready < 0) break;
          start = std::max(clock, ready);
          end = start + pass.forward;
          if (g + 1 < virtual_stages) {
            end += pass.blocked;
            forward_ready_[slot(g + 1, action.micro)] = end + pass.transfer - pass.blocked;
          } else {
            backward_ready_[slot(g, action.micro)] = end;
          }
        } else if (action.kind == spec::ActionKind::backward) {
          const double ready = backward_ready_[slot(g, action.micro)];
          if (ready < 0) break;
          start = std::max(clock, ready);
          end = start + pass.backward;
          if (g > 0 && early) {
            end += pass.blocked;
            backward_ready_[slot(g - 1, action.micro)] = end + pass.transfer - pass.blocked;
          }
        } else {
          end = start + pass.weight_gradient;
          if (g > 0 && !early) {
            end += pass.blocked;
            backward_ready_[slot(g - 1, action.micro)] = end + pass.transfer - pass.blocked;
          }
        }
        clock = end;
        if (out != nullptr) {
          out->busy[static_cast<size_t>(rank)] += end - start;
          out->timeline.push_back({rank, action, start, end});
        }
      }
    }
    TUTTI_CHECK(left < before, "the schedule of {} stages and {} micro-batches does not progress",
                mesh.pp, micro_batches);
  }
  return *std::max_element(clock_.begin(), clock_.end());
}

SimulatedPipeline PipelineSimulator::run(const spec::Mesh& mesh, int64_t micro_batches,
                                         const std::vector<PassSeconds>& stages, bool timeline) {
  SimulatedPipeline out;
  out.busy.assign(static_cast<size_t>(mesh.pp), 0);
  out.seconds = play(mesh, micro_batches, stages, &out);
  out.finished = clock_;
  if (!timeline) out.timeline.clear();
  return out;
}

double PipelineSimulator::seconds(const spec::Mesh& mesh, int64_t micro_batches,
                                  const std::vector<PassSeconds>& stages) {
  // Two windows after the pattern is periodic; lengths are multiples of pp for interleaving.
  const int64_t settled = 3 * mesh.pp;
  const int64_t period = mesh.pp;
  if (micro_batches <= settled + 2 * period) return play(mesh, micro_batches, stages, nullptr);
  const int64_t rest = micro_batches % period;
  const int64_t base = settled + rest;
  const double first = play(mesh, base, stages, nullptr);
  const double second = play(mesh, base + period, stages, nullptr);
  const int64_t periods = (micro_batches - base) / period;  // exact: base has the remainder
  return std::max(first + (second - first) * static_cast<double>(periods),
                  pipeline_lower_bound(mesh, micro_batches, stages));
}

}  // namespace tutti::plan
