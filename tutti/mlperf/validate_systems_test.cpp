// Which systems of a tree of results are compared with which.

#include <gtest/gtest.h>

#include "tutti/mlperf/test_support.h"
#include "tutti/mlperf/validate.h"

namespace tutti::mlperf {
namespace {

// Two systems of one size in one tree: two machines, whose repeats are no repeats of each other.
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

}  // namespace
}  // namespace tutti::mlperf
