#include "tutti/comm/rendezvous/launch_environment.h"

#include <gtest/gtest.h>

#include <map>

#include "tutti/base/error.h"

namespace tutti::comm {
namespace {

using Variables = std::map<std::string, std::string>;

LaunchEnvironment read(const Variables& variables) {
  return read_launch_environment([&](const std::string& name) -> std::optional<std::string> {
    const auto at = variables.find(name);
    return at == variables.end() ? std::nullopt : std::optional(at->second);
  });
}

std::string usage_error(const Variables& variables) {
  try {
    read(variables);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return "";
}

TEST(LaunchEnvironment, NothingIsAWorldOfOne) {
  const LaunchEnvironment one = read({});
  EXPECT_EQ(one.rank, 0);
  EXPECT_EQ(one.size, 1);
  EXPECT_EQ(one.launcher, "none");
}

TEST(LaunchEnvironment, TheCommonVariables) {
  const LaunchEnvironment out = read({{"RANK", "5"},
                                      {"WORLD_SIZE", "8"},
                                      {"LOCAL_RANK", "1"},
                                      {"LOCAL_WORLD_SIZE", "4"},
                                      {"MASTER_ADDR", "node1"},
                                      {"MASTER_PORT", "29500"},
                                      {"TUTTI_SECRET", "s"}});
  EXPECT_EQ(out.rank, 5);
  EXPECT_EQ(out.size, 8);
  EXPECT_EQ(out.local_rank, 1);
  EXPECT_EQ(out.local_size, 4);
  EXPECT_EQ(out.address, "node1");
  EXPECT_EQ(out.ports, std::vector<int>{29500});
  EXPECT_EQ(out.secret, "s");
  EXPECT_EQ(out.launcher, "environment");
}

TEST(LaunchEnvironment, TorchrunUsesTheAgentsPort) {
  const LaunchEnvironment out = read({{"RANK", "1"},
                                      {"WORLD_SIZE", "2"},
                                      {"LOCAL_RANK", "1"},
                                      {"LOCAL_WORLD_SIZE", "2"},
                                      {"MASTER_ADDR", "127.0.0.1"},
                                      {"MASTER_PORT", "29500"},
                                      {"TORCHELASTIC_RUN_ID", "run"},
                                      {"TORCHELASTIC_RESTART_COUNT", "2"},
                                      {"SLURM_PROCID", "0"},
                                      {"SLURM_NTASKS", "1"}});
  EXPECT_EQ(out.launcher, "torchrun");
  EXPECT_EQ(out.rank, 1);
  EXPECT_EQ(out.ports.front(), 29501);
  EXPECT_EQ(out.ports.size(), 8U);
  EXPECT_EQ(out.generation, 3U);
}

TEST(LaunchEnvironment, SlurmGivesAddressAndPort) {
  const Variables variables = {{"SLURM_PROCID", "9"},  {"SLURM_NTASKS", "16"},
                               {"SLURM_LOCALID", "1"}, {"SLURM_JOB_ID", "1234"},
                               {"SLURM_STEP_ID", "0"}, {"SLURM_JOB_NODELIST", "n[07-08]"},
                               {"TUTTI_SECRET", "s"}};
  const LaunchEnvironment out = read(variables);
  EXPECT_EQ(out.launcher, "slurm");
  EXPECT_EQ(out.rank, 9);
  EXPECT_EQ(out.size, 16);
  EXPECT_EQ(out.local_rank, 1);
  EXPECT_EQ(out.address, "n07");
  ASSERT_EQ(out.ports.size(), 8U);
  EXPECT_EQ(out.ports, read(variables).ports);
  EXPECT_GE(out.ports.front(), 20000);
  // A batch script is one process, whatever the job's tasks will be.
  EXPECT_EQ(read({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "16"}, {"SLURM_JOB_ID", "7"}}).size, 1);
}

TEST(LaunchEnvironment, MpirunOnOneHostNeedsNothingElse) {
  const Variables variables = {{"OMPI_COMM_WORLD_RANK", "1"},
                               {"OMPI_COMM_WORLD_SIZE", "2"},
                               {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                               {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                               {"PMIX_RANK", "1"},
                               {"PMIX_NAMESPACE", "12345"}};
  const LaunchEnvironment out = read(variables);
  EXPECT_EQ(out.launcher, "mpirun");
  EXPECT_EQ(out.rank, 1);
  EXPECT_EQ(out.address, "127.0.0.1");
  EXPECT_EQ(out.ports.size(), 8U);
  // Variables of the Slurm job that mpirun runs in speak of its own processes.
  Variables within = variables;
  within["SLURM_PROCID"] = "0";
  within["SLURM_NTASKS"] = "1";
  EXPECT_EQ(read(within).rank, 1);
  Variables across = variables;
  across["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  across["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  EXPECT_EQ(usage_error(across),
            "MASTER_ADDR is not set: 2 ranks need the address of the host of rank 0");
}

TEST(LaunchEnvironment, ConflictsNameBothVariablesAndValues) {
  EXPECT_EQ(usage_error(
                {{"RANK", "3"}, {"WORLD_SIZE", "8"}, {"SLURM_PROCID", "2"}, {"SLURM_NTASKS", "8"}}),
            "RANK=3 and SLURM_PROCID=2 disagree: unset what is not of this launcher");
  EXPECT_EQ(usage_error({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"PMIX_RANK", "0"}}),
            "RANK=1 and PMIX_RANK=0 disagree: unset what is not of this launcher");
  EXPECT_EQ(usage_error({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), "RANK=2 is not below WORLD_SIZE=2");
  EXPECT_EQ(usage_error({{"RANK", "x"}, {"WORLD_SIZE", "2"}}), "RANK=x: expected a whole number");
  EXPECT_EQ(usage_error({{"WORLD_SIZE", "2"}}),
            "WORLD_SIZE is set, but the rank (RANK) is not: set RANK and WORLD_SIZE, or neither");
}

TEST(LaunchEnvironment, SeveralHostsNeedASecret) {
  EXPECT_EQ(
      usage_error(
          {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "node1"}, {"MASTER_PORT", "29500"}}),
      "2 ranks meet at node1: set TUTTI_SECRET, or TUTTI_SECRET_FILE, to one secret on all "
      "of them");
}

TEST(LaunchEnvironment, HostLists) {
  EXPECT_EQ(expand_hosts("n[01-03,7],login"),
            (std::vector<std::string>{"n01", "n02", "n03", "n7", "login"}));
  EXPECT_EQ(expand_hosts("a,b[9-10]-ib"), (std::vector<std::string>{"a", "b9-ib", "b10-ib"}));
  for (const char* wrong : {"", "n[1-", "n[3-1]", "n[a]", ",a", "r[1-2]n[1-2]"}) {
    EXPECT_THROW(expand_hosts(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace tutti::comm
