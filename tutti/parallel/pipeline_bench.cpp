#include "tutti/parallel/pipeline_bench.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <mutex>

#include "tutti/base/clock.h"
#include "tutti/comm/thread_world.h"
#include "tutti/parallel/execute.h"

namespace tutti::parallel {
namespace {

constexpr int64_t kWidth = 16;  // elements of a boundary tensor

// Room for as many micro-batches as a rank's memory map has, over all its virtual stages.
struct Room {
  int64_t free = 0;
};

class SleepingPasses : public Passes {
 public:
  SleepingPasses(int64_t chunk, bool delays, const PassSeconds& seconds, Room& room,
                 std::vector<PassSpan>& spans)
      : chunk_(chunk), delays_(delays), seconds_(seconds), room_(room), spans_(spans) {}

  bool has_room() const override { return room_.free > 0; }
  void enter(int64_t /*micro*/) override { --room_.free; }
  void leave(int64_t /*micro*/) override { ++room_.free; }
  engine::Matrix input(int64_t /*micro*/) override {
    return engine::matrix(input_, DType::f32, 1, kWidth);
  }
  void forward(engine::Stream& /*stream*/, int64_t micro, engine::Matrix /*out*/) override {
    pass(spec::ActionKind::forward, micro, seconds_.forward);
  }
  void evaluate(engine::Stream& stream, int64_t micro, engine::Matrix out) override {
    forward(stream, micro, out);
  }
  void backward(engine::Stream& stream, int64_t micro, engine::Matrix /*d_residual*/) override {
    pass(spec::ActionKind::backward, micro, seconds_.backward);
    if (!delays_) weight_gradient(stream, micro);
  }
  bool delays_weights() const override { return delays_; }
  void weight_gradient(engine::Stream& /*stream*/, int64_t micro) override {
    pass(spec::ActionKind::weight_gradient, micro, seconds_.weight_gradient);
  }

 private:
  void pass(spec::ActionKind kind, int64_t micro, double seconds) {
    const double begin = monotonic_seconds();
    sleep_seconds(seconds);
    spans_.push_back({{kind, micro, chunk_}, begin, monotonic_seconds()});
  }

  int64_t chunk_;
  bool delays_;
  PassSeconds seconds_;
  Room& room_;
  std::vector<PassSpan>& spans_;
  float input_[kWidth] = {};  // nobody reads it
};

void measure_rank(const spec::Schedule& schedule, const PassSeconds& passes, comm::World& world,
                  engine::Stream& stream, std::vector<PassSpan>& spans) {
  const spec::Mesh& mesh = schedule.mesh;
  const Ranks ranks = ranks_of(world, 1);
  const int64_t stage = ranks.at.pp;
  Room room{spec::peak_in_flight(mesh, schedule.micro_batches, stage)};
  const bool delays = spec::peak_delayed(mesh, schedule.micro_batches, stage) > 0;
  std::vector<std::unique_ptr<SleepingPasses>> stages;
  std::vector<Passes*> chunks;
  for (int64_t chunk = 0; chunk < mesh.vpp; ++chunk) {
    stages.push_back(std::make_unique<SleepingPasses>(chunk, delays, passes, room, spans));
    chunks.push_back(stages.back().get());
  }
  float memory[4][kWidth] = {};
  Boundary boundary = {ranks.pipeline, ranks.pipeline_gradients};
  for (size_t i = 0; i < 2; ++i) {
    boundary.send[i] = engine::matrix(memory[i], DType::f32, 1, kWidth);
    boundary.d_residual[i] = engine::matrix(memory[2 + i], DType::f32, 1, kWidth);
  }
  Executor executor(mesh, stage, spec::step_actions(schedule, stage, 1), chunks, boundary);
  if (ranks.world != nullptr) ranks.world->barrier(stream).wait(stream);
  executor.run(stream, {.load = [](int64_t /*micro*/) {}});
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
