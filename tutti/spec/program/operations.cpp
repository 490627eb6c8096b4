// The operations of a program in the order of a step.
#include "tutti/base/real.h"
#include "tutti/spec/program/program.h"

namespace tutti::spec {
namespace {

void visit_runs(const Program& program, const StageProgram& stage, std::vector<Op> LayerOps::*list,
                bool first, const std::function<void(const Op&, bool, int64_t)>& visit) {
  for (const LayerRun& run : stage.runs) {
    for (const Op& op : program.kinds[run.kind].*list) visit(op, first, run.repeats);
  }
}

}  // namespace

void visit_operations(const Program& program, const Mesh& mesh, int64_t stage, const Action& action,
                      const std::function<void(const Op&, bool first, int64_t times)>& visit) {
  const StageProgram& chunk = program.stages[static_cast<size_t>(action.chunk * mesh.pp + stage)];
  const UpdateOps& update = program.updates[static_cast<size_t>(stage)];
  const bool first = action.micro == 0;
  const auto visit_all = [&](const std::vector<Op>& ops) {
    for (const Op& op : ops) visit(op, first, 1);
  };
  switch (action.kind) {
    case ActionKind::forward: visit_runs(program, chunk, &LayerOps::forward, first, visit); break;
    case ActionKind::backward:
      visit_runs(program, chunk, &LayerOps::recompute, first, visit);
      visit_runs(program, chunk, &LayerOps::backward_input, first, visit);
      break;
    case ActionKind::weight_gradient:
      if (chunk.repeats_again) visit_runs(program, chunk, &LayerOps::recompute, first, visit);
      visit_runs(program, chunk, &LayerOps::backward_weight, first, visit);
      break;
    case ActionKind::send:
    case ActionKind::send_gradient: visit_all(chunk.transfer); break;
    case ActionKind::receive:
    case ActionKind::receive_gradient:
      for (Op op : chunk.transfer) {
        op.name = "receive";
        visit(op, first, 1);
      }
      break;
    case ActionKind::gather: visit_all(chunk.gather); break;
    case ActionKind::gather_backward: visit_all(chunk.gather_backward); break;
    case ActionKind::reduce:
      visit_all(chunk.reduce);
      if (!first) visit_all(chunk.add);
      break;
    case ActionKind::norm:
      visit_all(update.tied_table);
      visit_all(update.tensor_copies);
      visit_all(update.router_loads);
      visit_all(update.norm);
      break;
    case ActionKind::update:
      visit_all(update.selection_bias);
      visit_all(update.update);
      visit_all(update.quantize);
      break;
    case ActionKind::quantize:
    case ActionKind::load:
    case ActionKind::fetch:
    case ActionKind::offload:
    case ActionKind::evaluate:
    case ActionKind::save: break;
  }
}

std::vector<Op> step_operations(const Program& program, const Schedule& schedule, int64_t stage) {
  std::vector<Op> operations;
  for (const Action& action : step_actions(schedule, stage, 1)) {
    visit_operations(program, schedule.mesh, stage, action,
                     [&](const Op& op, bool first, int64_t times) {
                       Op done = op;
                       if (first) done.bytes = op.first_bytes;
                       operations.insert(operations.end(), static_cast<size_t>(times), done);
                     });
  }
  return operations;
}

Work step_work(const Program& program, const Schedule& schedule, int64_t stage) {
  Work work;
  // Micro-batches after the first are equal: the second stands for all of them.
  for (const Action& action : step_actions(schedule, stage, 1)) {
    if (action.micro > 1) continue;
    const double alike = action.micro == 1 ? real(schedule.micro_batches - 1) : 1;
    visit_operations(program, schedule.mesh, stage, action,
                     [&](const Op& op, bool first, int64_t times) {
                       const double count = alike * real(times);
                       work.flops += count * op.flops;
                       work.model_flops += count * op.model_flops;
                       (op.collective ? work.collective_bytes : work.bytes) +=
                           count * (first ? op.first_bytes : op.bytes);
                     });
  }
  return work;
}

}  // namespace tutti::spec
