#include "tutti/train/session/step_trace.h"

#include <utility>

#include "tutti/base/clock.h"
#include "tutti/spec/schedule/step_list.h"

namespace tutti::train {
namespace {

constexpr int64_t kTraceWarmupSteps = 2;

Json describe(const engine::OpRecord& record) {
  const double seconds = record.end_seconds - record.begin_seconds;
  Json dims = Json::array();
  for (const int64_t dim : record.dims) {
    if (dim != 0) dims.push_back(dim);
  }
  return Json{{"dims", dims},
              {"flops", record.flops},
              {"bytes", record.bytes},
              {"gflops_per_second", record.flops / seconds / 1e9},
              {"gbytes_per_second", record.bytes / seconds / 1e9}};
}

}  // namespace

void add_operations(const std::vector<engine::OpRecord>& records, telemetry::Trace& trace) {
  for (const engine::OpRecord& record : records) {
    trace.add({record.op, "operation", record.begin_seconds,
               record.end_seconds - record.begin_seconds, 0, describe(record)});
  }
}

StepTrace::StepTrace(int64_t steps, std::string path, const spec::Mesh& mesh)
    : steps_(steps), path_(std::move(path)), mesh_(mesh), trace_("tutti train") {
  trace_.name_thread(0, "compute");
  trace_.name_thread(1, "actions");
}

bool StepTrace::records(int64_t index) const {
  return index >= kTraceWarmupSteps && index < kTraceWarmupSteps + steps_;
}

void StepTrace::begin_step(int64_t index, engine::Stream& stream) {
  if (!records(index)) return;
  recorder_.clear();
  stream.set_recorder(&recorder_);
  begin_seconds_ = monotonic_seconds();
  recording_ = true;
}

void StepTrace::begin_action(const spec::Action& action) {
  if (!recording_) return;
  end_action();
  action_ = action;
  action_seconds_ = monotonic_seconds();
}

void StepTrace::end_action() {
  if (!action_) return;
  trace_.add({spec::action_name(action_->kind), "action", action_seconds_,
              monotonic_seconds() - action_seconds_, 1,
              Json{{"micro", action_->micro},
                   {"chunk", action_->chunk},
                   {"part", spec::part_text(*action_, mesh_)}}});
  action_.reset();
}

void StepTrace::end_step(int64_t index, FileSystem& files, engine::Stream& stream) {
  if (!records(index)) return;
  end_action();
  recording_ = false;
  stream.set_recorder(nullptr);
  trace_.add({"step " + std::to_string(index + 1), "step", begin_seconds_,
              monotonic_seconds() - begin_seconds_, 0, nullptr});
  add_operations(recorder_.records(), trace_);
  if (index + 1 == kTraceWarmupSteps + steps_) trace_.write(files, path_);
}

}  // namespace tutti::train
