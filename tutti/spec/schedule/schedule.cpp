#include "tutti/spec/schedule/schedule.h"

#include <algorithm>
#include <utility>

#include "tutti/base/check.h"

namespace tutti::spec {
namespace {

// The k-th forward (or backward) of a rank: groups of pp micro-batches pass through chunk after
// chunk (backward: from the last chunk).
Action pass_at(const Mesh& mesh, ActionKind kind, int64_t k) {
  const int64_t group = k / mesh.virtual_stages();
  const int64_t in_group = k % mesh.virtual_stages();
  const int64_t chunk = in_group / mesh.pp;
  Action action;
  action.kind = kind;
  action.micro = mesh.vpp == 1 ? k : group * mesh.pp + in_group % mesh.pp;
  action.chunk = kind == ActionKind::forward ? chunk : mesh.vpp - 1 - chunk;
  if (mesh.vpp == 1) action.chunk = 0;
  return action;
}

int64_t warmup_forwards(const Mesh& mesh, int64_t micro_batches, int64_t stage) {
  const int64_t total = micro_batches * mesh.vpp;
  const int64_t behind = mesh.pp - stage - 1;
  switch (mesh.pipeline) {
    case Pipeline::gpipe: return total;
    case Pipeline::zero_bubble: return std::min(total, behind);
    case Pipeline::one_f_one_b:
      return std::min(total, mesh.vpp > 1 ? 2 * behind + (mesh.vpp - 1) * mesh.pp : behind);
  }
  return total;
}

class StepBuilder {
 public:
  StepBuilder(const Schedule& schedule, int64_t stage)
      : mesh_(schedule.mesh),
        micro_batches_(schedule.micro_batches),
        stage_(stage),
        weights_done_(static_cast<size_t>(mesh_.vpp), 0) {}

  std::vector<Action> build(bool evaluate, bool save) {
    const bool sharded = replicas(mesh_) > 1;
    if (sharded && (mesh_.zero == 1 || mesh_.zero == 2)) {
      for (int64_t chunk = 0; chunk < mesh_.vpp; ++chunk) add(ActionKind::gather, 0, chunk);
    }
    for (const Action& pass : pass_order(mesh_, micro_batches_, stage_)) add_pass(pass, sharded);
    add(ActionKind::norm, 0, 0);
    add(ActionKind::update, 0, 0);
    if (evaluate) add(ActionKind::evaluate, 0, 0);
    if (save) add(ActionKind::save, 0, 0);
    return std::move(actions_);
  }

 private:
  void add(ActionKind kind, int64_t micro, int64_t chunk) {
    actions_.push_back({.kind = kind, .micro = micro, .chunk = chunk});
  }

  void add_pass(const Action& pass, bool sharded) {
    const int64_t virtual_stage = pass.chunk * mesh_.pp + stage_;
    const bool first = virtual_stage == 0;
    const bool last = virtual_stage == mesh_.virtual_stages() - 1;
    const bool early_send = mesh_.pipeline == Pipeline::zero_bubble;
    const auto put = [&](ActionKind kind) { add(kind, pass.micro, pass.chunk); };
    switch (pass.kind) {
      case ActionKind::forward:
        if (pass.chunk == 0) put(ActionKind::load);
        if (sharded && mesh_.zero == 3) put(ActionKind::gather);
        if (!first) put(ActionKind::receive);
        put(ActionKind::forward);
        if (!last) put(ActionKind::send);
        break;
      case ActionKind::backward:
        if (sharded && mesh_.zero == 3) put(ActionKind::gather_backward);
        if (!last) put(ActionKind::receive_gradient);
        put(ActionKind::backward);
        if (!first && early_send) put(ActionKind::send_gradient);
        break;
      default: {
        put(ActionKind::weight_gradient);
        if (!first && !early_send) put(ActionKind::send_gradient);
        int64_t& done = weights_done_[static_cast<size_t>(pass.chunk)];
        ++done;
        if (!sharded) break;
        if (mesh_.zero >= 2) {
          put(ActionKind::reduce);  // gradients are held in shards only
        } else if (done == micro_batches_) {
          add(ActionKind::reduce, 0, pass.chunk);
        }
      }
    }
  }

  const Mesh& mesh_;
  int64_t micro_batches_;
  int64_t stage_;
  std::vector<int64_t> weights_done_;  // micro-batches whose weight gradient is added, per chunk
  std::vector<Action> actions_;
};

}  // namespace

const char* action_name(ActionKind kind) {
  switch (kind) {
    case ActionKind::load: return "load";
    case ActionKind::fetch: return "fetch";
    case ActionKind::gather: return "gather";
    case ActionKind::gather_backward: return "gather_backward";
    case ActionKind::quantize: return "quantize";
    case ActionKind::receive: return "receive";
    case ActionKind::forward: return "forward";
    case ActionKind::send: return "send";
    case ActionKind::receive_gradient: return "receive_gradient";
    case ActionKind::backward: return "backward";
    case ActionKind::weight_gradient: return "weight_gradient";
    case ActionKind::send_gradient: return "send_gradient";
    case ActionKind::offload: return "offload";
    case ActionKind::reduce: return "reduce";
    case ActionKind::norm: return "norm";
    case ActionKind::update: return "update";
    case ActionKind::evaluate: return "evaluate";
    case ActionKind::save: return "save";
  }
  return "?";
}

int64_t evaluation_interval(const Recipe& recipe) {
  const EvaluateConfig& evaluate = recipe.evaluate;
  if (evaluate.every_samples == 0) return evaluate.every_steps;
  return (evaluate.every_samples - 1) / recipe.batch.global + 1;
}

bool evaluation_due(const Recipe& recipe, int64_t step) {
  const int64_t every = evaluation_interval(recipe);
  return every > 0 && step % every == 0 && step / every > recipe.evaluate.skip_first;
}

Schedule make_schedule(const Recipe& recipe) {
  Schedule schedule;
  schedule.mesh = recipe.parallel;
  schedule.micro_batches = recipe.batch.global / (recipe.batch.micro * recipe.parallel.dp);
  schedule.evaluate_every_steps = evaluation_interval(recipe);
  schedule.evaluate_skip_first = recipe.evaluate.skip_first;
  schedule.save_every_steps = recipe.checkpoint.every_steps;
  return schedule;
}

std::vector<Action> pass_order(const Mesh& mesh, int64_t micro_batches, int64_t stage) {
  TUTTI_CHECK(stage >= 0 && stage < mesh.pp, "stage {} of {}", stage, mesh.pp);
  TUTTI_CHECK(mesh.vpp == 1 || micro_batches % mesh.pp == 0, "{} micro-batches on {} stages",
              micro_batches, mesh.pp);
  const int64_t total = micro_batches * mesh.vpp;
  const int64_t delay = mesh.pipeline == Pipeline::zero_bubble ? stage : 0;
  int64_t forwards = 0;
  int64_t weights = 0;
  std::vector<Action> order;
  order.reserve(static_cast<size_t>(3 * total));
  for (const int64_t warmup = warmup_forwards(mesh, micro_batches, stage); forwards < warmup;) {
    order.push_back(pass_at(mesh, ActionKind::forward, forwards++));
  }
  for (int64_t k = 0; k < total; ++k) {
    if (forwards < total) order.push_back(pass_at(mesh, ActionKind::forward, forwards++));
    order.push_back(pass_at(mesh, ActionKind::backward, k));
    if (k >= delay) order.push_back(pass_at(mesh, ActionKind::weight_gradient, weights++));
  }
  while (weights < total) {
    order.push_back(pass_at(mesh, ActionKind::weight_gradient, weights++));
  }
  return order;
}

std::vector<Action> step_actions(const Schedule& schedule, int64_t stage, int64_t step) {
  const auto due = [step](int64_t every) { return every > 0 && step % every == 0; };
  return StepBuilder(schedule, stage)
      .build(due(schedule.evaluate_every_steps) &&
                 step / schedule.evaluate_every_steps > schedule.evaluate_skip_first,
             due(schedule.save_every_steps));
}

int64_t peak_in_flight(const Mesh& mesh, int64_t micro_batches, int64_t stage) {
  const int64_t total = micro_batches * mesh.vpp;
  const int64_t delay = mesh.pipeline == Pipeline::zero_bubble ? stage : 0;
  return std::min(total, warmup_forwards(mesh, micro_batches, stage) + 1 + delay);
}

int64_t peak_delayed(const Mesh& mesh, int64_t micro_batches, int64_t stage) {
  const bool apart = mesh.pipeline == Pipeline::zero_bubble && stage > 0;
  return apart ? std::min(micro_batches, stage + 1) : 0;
}

int64_t peak_in_flight_weighted(const Mesh& mesh, int64_t micro_batches, int64_t stage,
                                const std::vector<int64_t>& weight) {
  TUTTI_CHECK(static_cast<int64_t>(weight.size()) == mesh.vpp, "{} weights for {} chunks",
              weight.size(), mesh.vpp);
  if (std::all_of(weight.begin(), weight.end(), [&](int64_t w) { return w == weight[0]; })) {
    return weight[0] * peak_in_flight(mesh, micro_batches, stage);
  }
  // The order is periodic after the warm-up, which two rounds of all stages contain.
  const int64_t seen =
      mesh.pipeline == Pipeline::gpipe ? micro_batches : std::min(micro_batches, 4 * mesh.pp);
  int64_t held = 0;
  int64_t most = 0;
  for (const Action& pass : pass_order(mesh, seen, stage)) {
    const int64_t layers = weight[static_cast<size_t>(pass.chunk)];
    if (pass.kind == ActionKind::forward) held += layers;
    if (pass.kind == ActionKind::weight_gradient) held -= layers;
    most = std::max(most, held);
  }
  return most;
}

int64_t peak_in_flight_of_chunk(const Mesh& mesh, int64_t micro_batches, int64_t stage,
                                int64_t chunk) {
  std::vector<int64_t> weights(static_cast<size_t>(mesh.vpp), 0);
  weights[static_cast<size_t>(chunk)] = 1;
  return peak_in_flight_weighted(mesh, micro_batches, stage, weights);
}

}  // namespace tutti::spec
