// Exchanges with Slurm, without a Slurm; tests/control/slice_test.py has a real one.

#include "tutti/control/slurm/launcher.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tutti/base/json.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/control/controller/cluster_nodes.h"
#include "tutti/control/controller/controller.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/launches/fault_files.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

TEST(Squeue, RunningJobWinsAmongDuplicateNames) {
  const auto jobs = parse_squeue(
      "7|tutti-1-100-1|FAILED|NonZeroExitCode|n1|n1\n"
      "9|tutti-1-100-1|COMPLETED|None|n2|n2\n"
      "8|tutti-1-100-1|RUNNING|None|n[1-2]|n1\n"
      "10|tutti-2-100-1|PENDING|Resources||n/a\n"
      "11|another|RUNNING|None|n3|n3\n"
      "squeue: noise\n");
  ASSERT_EQ(jobs.size(), 2U);
  EXPECT_EQ(jobs.at("tutti-1-100-1").id, 8);
  EXPECT_EQ(jobs.at("tutti-1-100-1").nodes, "n[1-2]");
  EXPECT_EQ(jobs.at("tutti-1-100-1").head, "n1");
  EXPECT_EQ(jobs.at("tutti-2-100-1").reason, "Resources");
}

TEST(SlurmNames, AreThoseOfLaunchesAndBack) {
  const LaunchKey key{7, kNoon, 3};
  const auto back = launch_of(slurm_name(key));
  ASSERT_TRUE(back);
  EXPECT_EQ(launch_name(*back), launch_name(key));
  for (const char* other :
       {"", "tutti", "tutti-1-2", "tutti-1-2-x", "tutti-1-2-3-4", "their-1-2-3", "tutti-1--3"}) {
    EXPECT_FALSE(launch_of(other)) << other;
  }
}

TEST(Sinfo, NodesThatTakeJobsAreUp) {
  const auto nodes = parse_sinfo(
      "n1|8|idle|none|(null)\n"
      "n2|8|mixed|none|gpu:h200:8(S:0-1)\n"
      "n2|8|mixed|none|gpu:h200:8(S:0-1)\n"  // in a second partition
      "n3|8|down*|Not responding|(null)\n"
      "n4|8|idle*|none|(null)\n"
      "n5|8|drained|bad memory|(null)\n"
      "n6|8|allocated~|none|gpu:2,license:1\n"
      "n7|8|drained|disk | cable|gpu:4\n");
  ASSERT_EQ(nodes.size(), 7U);
  const auto up = [&](size_t at) { return nodes[at].up; };
  EXPECT_TRUE(up(0) && up(1) && up(5));
  EXPECT_FALSE(up(2) || up(3) || up(4));
  EXPECT_EQ(nodes[1].gpus, 8);
  EXPECT_EQ(nodes[6].gpus, 4);
  EXPECT_EQ(nodes[5].gpus, 2);
  EXPECT_EQ(nodes[4].reason, "drained: bad memory");
}

TEST(Sbatch, AGangWithItsLimitAndWithoutTheEnvironment) {
  LaunchOrder order;
  order.key = {3, 100, 2};
  order.folder = "/work";
  order.claims = {{3, 2, "n1", 8, 4}, {3, 2, "n2", 8, 4}};
  order.stop_after_ms = 61'000;
  order.avoid = {"n7", "n9"};
  const auto words = sbatch_words(order, {"fast", "vision"}, "/jobs/3-100/output.log");
  for (const char* word :
       {"--job-name=tutti-3-100-2", "--nodes=2", "--exclusive", "--no-requeue", "--no-kill",
        "--export=NIL", "--partition=fast", "--account=vision", "--time=6", "--signal=B:USR2@120",
        "--gpus-per-node=4", "--exclude=n7,n9", "--chdir=/work", "--open-mode=append"}) {
    EXPECT_NE(std::find(words.begin(), words.end(), word), words.end()) << word;
  }
}

TEST(Cluster, NodesComeGoAndStayDrained) {
  SmallControlPlane plane;
  Node n2{"n2", 4, 0, true, true, "new memory"};
  define_node(plane.as("root"), n2);
  const std::vector<Node> seen = {{"n2", 4, 0, true, false, ""}, {"n3", 8, 0, true, false, ""}};
  EXPECT_EQ(follow_cluster(plane.database, seen, kNoon), 2);  // n1 is gone, n3 is new
  EXPECT_EQ(follow_cluster(plane.database, seen, kNoon), 0);
  const std::vector<Node> nodes = all_nodes(plane.database);
  ASSERT_EQ(nodes.size(), 3U);
  EXPECT_FALSE(nodes[0].up);
  EXPECT_TRUE(nodes[1].up && nodes[1].drained);
  EXPECT_EQ(nodes[1].reason, "new memory");
  EXPECT_TRUE(nodes[2].up);
}

// A system outside: gives other nodes than were asked for, reports a fault, ends as it likes.
class Outside final : public Launcher {
 public:
  void start(const LaunchOrder& order) override {
    orders.push_back(order);
    now.phase = LaunchPhase::running;
  }
  LaunchStatus status(const LaunchKey& key) override {
    if (key.job == broken_job) fail(ErrorKind::corrupt, "'begun-1' is broken");
    return now;
  }
  void stop(const LaunchKey& /*key*/) override {}
  void kill(const LaunchKey& /*key*/) override {}
  std::vector<Fault> faults(const LaunchKey& /*key*/, const std::string& /*run*/) override {
    return reported;
  }
  LaunchStatus now;
  int64_t broken_job = 0;  // whose folder cannot be read
  std::vector<Fault> reported;
  std::vector<LaunchOrder> orders;
};

TEST(Outside, ItsNodesFaultsAndPreemptionsBecomeTheRecords) {
  SmallControlPlane plane;
  define_node(plane.as("root"), {"n3", 4, 0, true, false, ""});
  const int64_t id = submit(plane.as("ada"), plane.request(), false).job.id;
  Outside outside;
  Controller controller(plane.database, outside);
  int64_t now = kNoon;
  controller.tick(now);
  outside.now.nodes = {"n3"};
  outside.now.elapsed_ms = 100'000;
  controller.tick(now += 100'000);
  EXPECT_EQ(claims_of(plane.database, id).front().node, "n3");
  EXPECT_EQ(launches_of(plane.database, id).front().nodes, std::vector<std::string>{"n3"});

  Fault fault;
  fault.name = "fault-1.json";
  fault.time_ms = now;
  fault.node = "n3";
  fault.rank = 2;
  fault.cause = "rank 2 was lost with its node n3";
  fault.action = "3 ranks start again";
  fault.lost_ms = 36'000;
  outside.reported = {fault};
  controller.tick(now += 1'000);
  controller.tick(now += 1'000);
  auto incidents = incidents_of(plane.database, id);
  ASSERT_EQ(incidents.size(), 1U);
  EXPECT_EQ(incidents[0].rank, 2);
  EXPECT_EQ(incidents[0].micro_usd, 36'000);  // a hundredth of an hour at 3.60 USD

  // Preempted by that system: back into the line, and not to the node that failed it.
  outside.now.phase = LaunchPhase::ended;
  outside.now.exit_code = exit_requeue;
  outside.now.stopped_by = Stop::preempt;
  controller.tick(now += 1'000);
  EXPECT_EQ(find_job(plane.database, id)->requeues, 1);
  EXPECT_EQ(find_job(plane.database, id)->attempts, 0);
  ASSERT_EQ(outside.orders.size(), 2U);
  EXPECT_EQ(outside.orders[1].key.generation, 2);
  EXPECT_EQ(outside.orders[1].avoid, std::vector<std::string>{"n3"});
  verify_ledger(plane.database);
}

TEST(SlurmStates, SayMoreThanThePhase) {
  const auto said = [](const char* state) {
    LaunchStatus status;
    read_slurm_state(state, status);
    return status;
  };
  EXPECT_TRUE(said("SUSPENDED").suspended && said("STOPPED").suspended);
  EXPECT_TRUE(said("OUT_OF_MEMORY").out_of_memory);
  EXPECT_FALSE(said("RUNNING").suspended || said("FAILED").out_of_memory);
  EXPECT_EQ(said("PREEMPTED").stopped_by, Stop::preempt);
}

TEST(SlurmStates, NodesDrainedForDuplicateJobidAreRecognized) {
  EXPECT_TRUE(is_duplicate_launch("Duplicate jobid\n"));
  for (const char* other : {"", "none\n", "bad memory\n", "Not responding\n"}) {
    EXPECT_FALSE(is_duplicate_launch(other)) << other;
  }
}

TEST(Outside, SuspensionAndOutOfMemoryAreRecorded) {
  SmallControlPlane plane;
  const int64_t id = submit(plane.as("ada"), plane.request(), false).job.id;
  Outside outside;
  Controller controller(plane.database, outside);
  int64_t now = kNoon;
  const auto state_after_tick = [&] {
    controller.tick(now += 1'000);
    return find_job(plane.database, id)->state;
  };
  controller.tick(now);
  EXPECT_EQ(state_after_tick(), JobState::running);
  outside.now.suspended = true;
  EXPECT_EQ(state_after_tick(), JobState::suspended);
  EXPECT_EQ(state_after_tick(), JobState::suspended);
  outside.now.suspended = false;
  EXPECT_EQ(state_after_tick(), JobState::running);
  outside.now.suspended = true;
  EXPECT_EQ(state_after_tick(), JobState::suspended);
  outside.now.phase = LaunchPhase::lost;
  outside.now.suspended = false;
  outside.now.out_of_memory = true;
  EXPECT_EQ(state_after_tick(), JobState::pending);  // it is tried again
  EXPECT_EQ(incidents_of(plane.database, id).front().cause, "OutOfMemory");
  EXPECT_EQ(launches_of(plane.database, id).front().outcome, "OutOfMemory");
}

TEST(Outside, UnreadableJobsAreReportedAndDoNotBlockOthers) {
  SmallControlPlane plane;
  const int64_t broken = submit(plane.as("ada"), plane.request(), false).job.id;
  const int64_t other = submit(plane.as("ada"), plane.request(), false).job.id;
  const auto detail = [&] { return find_job(plane.database, broken)->detail; };
  Outside outside;
  Controller controller(plane.database, outside);
  int64_t now = kNoon;
  controller.tick(now);
  controller.tick(now += 1'000);
  ASSERT_EQ(find_job(plane.database, broken)->state, JobState::running);
  outside.broken_job = broken;
  controller.tick(now += 1'000);
  EXPECT_EQ(detail(), "'begun-1' is broken");
  outside.broken_job = 0;
  controller.tick(now += 1'000);
  EXPECT_EQ(detail(), "");

  // Asked to stop: the reason is kept.
  cancel(plane.as("ada"), broken);
  outside.broken_job = broken;
  outside.now.phase = LaunchPhase::ended;
  outside.now.exit_code = exit_requeue;
  controller.tick(now += 1'000);
  EXPECT_EQ(find_job(plane.database, other)->state, JobState::pending);  // saved, to be resumed
  EXPECT_EQ(detail(), "cancel asked by ada");
  outside.broken_job = 0;
  controller.tick(now += 1'000);
  EXPECT_EQ(find_job(plane.database, broken)->state, JobState::cancelled);
  EXPECT_EQ(detail(), "cancel asked by ada");
}

TEST(IncidentFiles, OnePerIncidentWrittenOnce) {
  SmallControlPlane plane;
  const int64_t id = submit(plane.as("ada"), plane.request(), false).job.id;
  Incident incident;
  incident.job = id;
  incident.node = "n1";
  incident.name = "fault-1.json";
  add_incident(plane.database, incident);
  add_incident(plane.database, incident);  // the same report again
  incident.name.clear();
  add_incident(plane.database, incident);
  add_incident(plane.database, incident);  // ends of two launches
  MemoryFileSystem files;
  const int64_t last = write_incident_files(plane.database, files, "incidents", 0);
  EXPECT_EQ(files.list("incidents").size(), 3U);
  const Json json = parse_json(read_file(files, "incidents/000001.json"), "it");
  EXPECT_EQ(json["user"], "ada");
  EXPECT_EQ(write_incident_files(plane.database, files, "incidents", last), last);
}

}  // namespace
}  // namespace tutti::control
