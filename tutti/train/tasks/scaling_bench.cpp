#include "tutti/train/tasks/scaling_bench.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/quantile.h"
#include "tutti/engine/recorder.h"
#include "tutti/telemetry/trace.h"
#include "tutti/train/session/rank_consensus.h"
#include "tutti/train/session/step_trace.h"
#include "tutti/train/tasks/random_steps.h"

namespace tutti::train {
namespace {

constexpr int64_t kScalingWarmupSteps = 2;

struct RankTimes {
  double step = 0, compute = 0, waited = 0;
};

// Of the operations, not of communication: that is recorded as an instant.
double operation_seconds(const engine::Recorder& recorder) {
  double sum = 0;
  for (const engine::OpRecord& record : recorder.records()) {
    sum += record.end_seconds - record.begin_seconds;
  }
  return sum;
}

}  // namespace

ScalingBench bench_scaling(const spec::Recipe& recipe, comm::World* world, int64_t steps,
                           bool record) {
  const RankConsensus consensus(world, recipe.model.kv_heads);
  RandomSteps random(recipe, consensus.ranks());
  engine::Stream& stream = random.trainer().stream();
  for (int64_t i = 0; i < kScalingWarmupSteps; ++i) random.step();
  engine::Recorder recorder;
  stream.set_recorder(&recorder);
  telemetry::Trace trace("tutti bench scaling");
  std::vector<double> step, compute, exposed, waiting, host;
  for (int64_t i = 0; i < steps; ++i) {
    recorder.clear();
    const double waited = world == nullptr ? 0 : world->waited_seconds();
    const double begin = monotonic_seconds();
    RankTimes mine;
    mine.step = random.step();
    mine.waited = world == nullptr ? 0 : world->waited_seconds() - waited;
    mine.compute = operation_seconds(recorder);
    if (record) {
      trace.add({"step " + std::to_string(i + 1), "step", begin, mine.step, 0,
                 Json{{"waited_seconds", mine.waited}}});
      add_operations(recorder.records(), trace);
    }
    const std::vector<RankTimes> all = consensus.exchange(mine);
    RankTimes sum;
    double least = all.front().waited;
    for (const RankTimes& rank : all) {
      sum.step += rank.step / static_cast<double>(all.size());
      sum.compute += rank.compute / static_cast<double>(all.size());
      sum.waited += rank.waited / static_cast<double>(all.size());
      least = std::min(least, rank.waited);
    }
    step.push_back(sum.step);
    compute.push_back(sum.compute);
    exposed.push_back(least);
    waiting.push_back(sum.waited - least);
    host.push_back(sum.step - sum.compute - sum.waited);
  }
  stream.set_recorder(nullptr);
  std::vector<double> communication;
  for (int64_t i = 0; i < steps && world != nullptr; ++i) {
    consensus.exchange(RankTimes{});  // all begin together
    const double begin = monotonic_seconds();
    random.trainer().exchange_alone();
    stream.synchronize();
    double longest = 0;
    for (const double seconds : consensus.exchange(monotonic_seconds() - begin)) {
      longest = std::max(longest, seconds);
    }
    communication.push_back(longest);
  }
  ScalingBench out;
  out.ranks = consensus.size();
  out.threads = stream.threads();
  out.tokens_per_step = recipe.batch.global * recipe.batch.sequence;
  out.step_seconds = quantile(step, 0.5);
  out.compute_seconds = quantile(compute, 0.5);
  out.exposed_seconds = quantile(exposed, 0.5);
  out.waiting_seconds = quantile(waiting, 0.5);
  out.host_seconds = quantile(host, 0.5);
  if (!communication.empty()) out.communication_seconds = quantile(communication, 0.5);
  if (record) out.trace = trace.to_json();
  return out;
}

Json to_json(const ScalingBench& bench) {
  Json json = {{"ranks", bench.ranks},
               {"threads_per_rank", bench.threads},
               {"tokens_per_step", bench.tokens_per_step},
               {"tokens_per_second", bench.tokens_per_second()},
               {"step_seconds", bench.step_seconds},
               {"compute_seconds", bench.compute_seconds},
               {"exposed_communication_seconds", bench.exposed_seconds},
               {"waiting_seconds", bench.waiting_seconds},
               {"host_seconds", bench.host_seconds},
               {"communication_alone_seconds", bench.communication_seconds}};
  if (!bench.trace.is_null()) json["trace"] = bench.trace;
  return json;
}

ScalingBench parse_scaling_bench(const Json& json) {
  ScalingBench bench;
  json.at("ranks").get_to(bench.ranks);
  json.at("threads_per_rank").get_to(bench.threads);
  json.at("tokens_per_step").get_to(bench.tokens_per_step);
  json.at("step_seconds").get_to(bench.step_seconds);
  json.at("compute_seconds").get_to(bench.compute_seconds);
  json.at("exposed_communication_seconds").get_to(bench.exposed_seconds);
  json.at("waiting_seconds").get_to(bench.waiting_seconds);
  json.at("host_seconds").get_to(bench.host_seconds);
  json.at("communication_alone_seconds").get_to(bench.communication_seconds);
  bench.trace = json.value("trace", Json());
  return bench;
}

}  // namespace tutti::train
