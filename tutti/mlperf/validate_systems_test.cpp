// Which systems of a tree of results are compared with which.

#include <gtest/gtest.h>

#include "tutti/mlperf/testing/test_support.h"
#include "tutti/mlperf/validate.h"
#include "tutti/telemetry/sinks/jsonl.h"

namespace tutti::mlperf {
namespace {

// Two systems of one size in one tree: two machines, whose repeats are not repeats of each other.
std::vector<Workload> two_systems(double slowdown_of_b) {
  MemoryFileSystem files;
  for (const char* system : {"a", "b"}) {
    for (int i = 0; i < 6; ++i) {
      SyntheticRun run;
      run.seed = i;
      run.seconds_per_sample =
          0.01 * (system[0] == 'b' ? slowdown_of_b : 1) * (i % 2 == 0 ? 1.002 : 0.998);
      write_file(files, fmt::format("results/{}/llama31_8b/result_{}.txt", system, i),
                 good_log(run).text());
    }
    write_file(files, fmt::format("systems/{}.json", system),
               fmt::format(R"({{"submitter": "Me", "system_name": "{}", "number_of_nodes": 1,
                               "accelerators_per_node": 8}})",
                           system));
  }
  return read_workloads(files, ".", benchmarks());
}

TEST(Validate, SystemsAreNeverPooled) {
  const auto both = two_systems(1.5);
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].repeats.size(), 6U);
  EXPECT_EQ(both[0].system, "Me, a");
  // Each of two systems against one reference.
  const Validation each = validate(both, {both[0]}, {});
  ASSERT_EQ(each.workloads.size(), 2U);
  EXPECT_EQ(each.workloads[0].judgement, Judgement::pass);
  EXPECT_EQ(each.workloads[1].judgement, Judgement::short_of);
  EXPECT_EQ(each.workloads[1].name, "Llama 3.1 8B x 8 of Me, b");
  // A reference of two systems: that of the same name, else none.
  EXPECT_TRUE(validate(both, both, {}).all(Judgement::pass));
  std::vector<Workload> unnamed = {both[0]};
  unnamed[0].system = "elsewhere";
  const Validation unclear = validate(unnamed, both, {});
  EXPECT_EQ(unclear.workloads.at(0).judgement, Judgement::incomparable);
  EXPECT_NE(unclear.workloads.at(0).reason.find("2 systems of Llama 3.1 8B x 8: Me, a; Me, b"),
            std::string::npos)
      << unclear.workloads.at(0).reason;
}

// Five runs of each machine, recorded as `tutti train` records them.
std::vector<Workload> runs_on(const std::vector<std::string>& hosts, int64_t cores,
                              const std::string& gpu) {
  MemoryFileSystem files;
  for (const std::string& host : hosts) {
    for (int i = 0; i < 5; ++i) {
      const std::string folder = fmt::format("runs/{}-{}", host, i);
      write_file(files, folder + "/recipe.yaml", "precision: bf16\n");
      telemetry::JsonLinesSink sink(files, folder + "/events.jsonl");
      double now = 1.7e9;
      if (!host.empty()) {
        telemetry::MachineDescribed machine;
        machine.host = host;
        machine.cpu = "C1";
        machine.cores = cores;
        sink.write({now, machine});
      }
      telemetry::RunStarted started;
      started.parameters = 1'000'000;
      started.tokens_per_step = 1000;
      sink.write({now, started});
      for (int step = 1; step <= 8; ++step) {
        now += 1 + 0.001 * i;
        telemetry::StepDone done;
        done.step = step;
        done.loss = done.gradient_norm = 1;
        done.step_seconds = 1 + 0.001 * i;
        sink.write({now, done});
        for (int n = 0; n < 2 && !gpu.empty(); ++n) {
          telemetry::GpuMeasured measured;
          measured.gpu = fmt::format("0000:{}a:00.0", n);
          measured.name = gpu;
          sink.write({now, measured});
        }
      }
      sink.write({now, telemetry::RunFinished{"steps_done", Json::object()}});
    }
  }
  return read_workloads(files, "runs", benchmarks());
}

TEST(Validate, RunsOfDifferentMachinesAreNeverPooled) {
  const auto both = runs_on({"one", "two"}, 4, "G1");
  ASSERT_EQ(both.size(), 2U);
  EXPECT_EQ(both[0].repeats.size(), 5U);
  EXPECT_EQ(both[0].system, "one (C1, 4 cores, 2 x G1)");
  // A reference of two machines, neither of which is that of the results.
  const auto third = runs_on({"three"}, 4, "G1");
  const Validation unclear = validate(third, both, {});
  EXPECT_EQ(unclear.workloads.at(0).judgement, Judgement::incomparable);
  EXPECT_NE(unclear.workloads.at(0).reason.find("one (C1, 4 cores, 2 x G1); two (C1"),
            std::string::npos)
      << unclear.workloads.at(0).reason;
  // One machine against another one is what the command is for.
  EXPECT_TRUE(validate(third, runs_on({"one"}, 8, ""), {}).all(Judgement::pass));
  // Of one host: other cores, other GPUs.
  EXPECT_NE(runs_on({"one"}, 4, "G1")[0].system, runs_on({"one"}, 8, "G1")[0].system);
  EXPECT_NE(runs_on({"one"}, 4, "G1")[0].system, runs_on({"one"}, 4, "G2")[0].system);
  const auto unknown = runs_on({"", "one"}, 4, "");
  ASSERT_EQ(unknown.size(), 2U);
  EXPECT_EQ(unknown[0].system, "");
  EXPECT_NE(validate(third, unknown, {}).workloads.at(0).reason.find("not recorded"),
            std::string::npos);
}

}  // namespace
}  // namespace tutti::mlperf
