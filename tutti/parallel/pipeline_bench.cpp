#include "tutti/parallel/pipeline_bench.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>

#include "tutti/base/clock.h"
#include "tutti/comm/world/thread_world.h"
#include "tutti/parallel/execute.h"
#include "tutti/parallel/pipeline_messages.h"
#include "tutti/parallel/ranks.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kWidth = 16;  // elements of a boundary tensor

// Capacity for as many micro-batches as a rank's memory map has, over all its virtual stages.
struct Room {
  int64_t free = 0;
};

class RoomInbox : public Inbox {
 public:
  explicit RoomInbox(Room& room) : room_(room) {}
  bool has_room() const override { return room_.free > 0; }
  void enter(int64_t /*micro*/) override { --room_.free; }
  engine::Matrix input(int64_t /*micro*/) override {
    return engine::matrix(input_, DType::f32, 1, kWidth);
  }

 private:
  Room& room_;
  float input_[kWidth] = {};  // never read
};

void measure_rank(const spec::Schedule& schedule, const PassSeconds& passes, comm::World& world,
                  engine::Stream& stream, std::vector<PassSpan>& spans) {
  using Kind = spec::ActionKind;
  const spec::Mesh& mesh = schedule.mesh;
  const Ranks ranks = ranks_of(world, 1);
  const int64_t stage = ranks.at.pp;
  Room room{spec::peak_in_flight(mesh, schedule.micro_batches, stage)};
  std::vector<std::unique_ptr<RoomInbox>> inboxes;
  std::vector<Inbox*> chunks;
  for (int64_t chunk = 0; chunk < mesh.vpp; ++chunk) {
    inboxes.push_back(std::make_unique<RoomInbox>(room));
    chunks.push_back(inboxes.back().get());
  }
  float memory[4][kWidth] = {};
  Boundary boundary = {ranks.pipeline, ranks.pipeline_gradients};
  for (size_t i = 0; i < 2; ++i) {
    boundary.send[i] = engine::matrix(memory[i], DType::f32, 1, kWidth);
    boundary.d_residual[i] = engine::matrix(memory[2 + i], DType::f32, 1, kWidth);
  }
  PipelineMessages pipeline(mesh, stage, chunks, boundary);
  Executor executor;
  handle_messages(executor, pipeline);
  const auto sleep = [&](const spec::Action& action, double seconds) {
    const double begin = monotonic_seconds();
    sleep_seconds(seconds);
    spans.push_back({action, begin, monotonic_seconds()});
  };
  const auto nothing = [](engine::Stream& /*stream*/, const spec::Action& /*action*/) {};
  for (const Kind kind : {Kind::load, Kind::norm, Kind::update}) executor.handle(kind, nothing);
  executor.handle(Kind::forward, [&](engine::Stream& on, const spec::Action& action) {
    if (stage < mesh.pp - 1 || action.chunk < mesh.vpp - 1) pipeline.output(on);
    sleep(action, passes.forward);
  });
  executor.handle(Kind::backward, [&](engine::Stream& on, const spec::Action& action) {
    pipeline.await_gradient(on);
    sleep(action, passes.backward);
  });
  executor.handle(Kind::weight_gradient, [&](engine::Stream& /*on*/, const spec::Action& action) {
    sleep(action, passes.weight_gradient);
    ++room.free;
    if (stage == 0 && action.chunk == 0) pipeline.drop_gradient();
  });
  const std::vector<spec::Action> actions = spec::step_actions(schedule, stage, 1);
  executor.check(actions);
  if (ranks.world != nullptr) ranks.world->barrier(stream).wait(stream);
  pipeline.begin(actions);
  executor.run(stream, actions);
  pipeline.end(stream);
}

}  // namespace

double PipelineMeasurement::busy_seconds() const {
  double sum = 0;
  for (const std::vector<PassSpan>& rank : ranks) {
    for (const PassSpan& span : rank) sum += span.end_seconds - span.begin_seconds;
  }
  return sum / static_cast<double>(ranks.size());
}

PipelineMeasurement measure_pipeline(const spec::Mesh& mesh, int64_t micro_batches,
                                     const PassSeconds& passes) {
  spec::Schedule schedule;
  schedule.mesh = mesh;
  schedule.micro_batches = micro_batches;
  PipelineMeasurement out;
  out.ranks.resize(static_cast<size_t>(mesh.pp));
  comm::run_threads(mesh, [&](comm::World& world, engine::Stream& stream) {
    measure_rank(schedule, passes, world, stream, out.ranks[static_cast<size_t>(world.rank())]);
  });
  double begin = std::numeric_limits<double>::infinity();
  double end = 0;
  for (const std::vector<PassSpan>& rank : out.ranks) {
    begin = std::min(begin, rank.front().begin_seconds);
    end = std::max(end, rank.back().end_seconds);
  }
  for (std::vector<PassSpan>& rank : out.ranks) {
    for (PassSpan& span : rank) {
      span.begin_seconds -= begin;
      span.end_seconds -= begin;
    }
  }
  out.seconds = end - begin;
  return out;
}

double ideal_bubble(const spec::Mesh& mesh, int64_t micro_batches) {
  const bool zero = mesh.pipeline == spec::Pipeline::zero_bubble;
  return static_cast<double>(mesh.pp - 1) /
         static_cast<double>((zero ? 3 : mesh.vpp) * micro_batches);
}

}  // namespace tutti::parallel
