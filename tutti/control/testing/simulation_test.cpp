// The controller against ten thousand histories of submissions, failures, preemptions, restarts of
// itself and jumps of the clock. Each is a pure function of its seed:
//
//   TUTTI_SEED=4711 control_test --gtest_filter='Simulation.*'      one seed, with its history
//   TUTTI_SEEDS=200 control_test --gtest_filter='Simulation.*'      the first 200

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tutti/control/audit/audit.h"
#include "tutti/control/controller/controller.h"
#include "tutti/control/jobs/job_table.h"
#include "tutti/control/ledger/ledger.h"
#include "tutti/control/schedule/policy.h"
#include "tutti/control/testing/simulated_world.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

constexpr const char* kProjects[] = {"vision", "speech", "text"};
constexpr const char* kUsers[] = {"ada", "bob", "cyd"};

struct Killed {};  // the controller, at this very instruction

// The database of all histories of a thread: what a history wrote is removed before the next.
struct SimulatedCluster {
  Database database{":memory:"};
  SimulatedCluster() {
    database.execute("PRAGMA synchronous = OFF; PRAGMA journal_mode = MEMORY;");
    prepare_schema(database);
    Site site;
    site.micro_usd_per_node_hour = 3'600'000;
    site.milliwatts_per_node = 1'000'000;
    site.micro_kg_per_kwh = 400'000;
    create_control_plane({database, "root", kNoon}, {"n1", 4, 0, true, false, ""}, site);
    for (const char* name : {"n2", "n3"}) {
      define_node({database, "root", kNoon}, {name, 4, 0, true, false, ""});
    }
    for (int i = 0; i < 3; ++i) {
      create_user({database, "root", kNoon}, kUsers[i]);
      Project project;
      project.name = kProjects[i];
      define_project({database, "root", kNoon}, project);
      grant({database, "root", kNoon}, {kUsers[i], kProjects[i], Role::operator_});
    }
  }
  void clear() {
    database.commit_probe = nullptr;
    for (const char* table : {"claims", "launches", "ledger", "totals", "incidents", "audit"}) {
      database.execute(("DELETE FROM " + std::string(table)).c_str());
    }
    database.execute(
        "DELETE FROM jobs; DELETE FROM sqlite_sequence; UPDATE nodes SET up = 1, drained = 0;"
        "UPDATE audit_head SET seq = 0, hash = '', exported = 0, exported_bytes = 0;");
  }
};

class History {
 public:
  History(SimulatedCluster& plane, uint64_t seed) : plane_(plane), world_(seed), seed_(seed) {
    plane.clear();
    for (int i = 0; i < 3; ++i) {
      Project project;
      project.name = kProjects[i];
      if (draw(2) == 0) project.max_jobs = 1 + static_cast<int64_t>(draw(3));
      if (draw(3) == 0) project.max_nodes = 1 + static_cast<int64_t>(draw(3));
      if (draw(3) == 0) project.max_cores = 2 + static_cast<int64_t>(draw(8));
      // About 20 to 400 seconds of a node.
      if (draw(3) == 0) {
        project.budget.micro_usd = static_cast<int64_t>(20'000 + draw(400'000));
      }
      projects_[project.name] = project;
      Transaction transaction(plane.database);
      write_project(plane.database, project, kNoon);
      transaction.commit();
    }
    controller_ = std::make_unique<Controller>(plane.database, world_);
    plane.database.commit_probe = [this](Database::CommitPhase) { maybe_killed(); };
  }

  // "" or what is wrong.
  std::string play() {
    const int events = 8 + static_cast<int>(draw(10));
    for (int i = 0; i < events && wrong_.empty(); ++i) {
      happen();
      const int rounds = 1 + static_cast<int>(draw(4));
      for (int round = 0; round < rounds && wrong_.empty(); ++round) {
        pass(1 + static_cast<int64_t>(draw(8'000)));
        tick();
      }
    }
    settle();
    if (wrong_.empty()) check_end();
    return wrong_;
  }

  const std::vector<std::string>& log() const { return log_; }
  // How often each transition, and a death of the controller, happened.
  const std::map<std::string, int64_t>& counts() const { return counts_; }

 private:
  uint64_t draw(uint64_t below) { return world_.draw(below); }
  int64_t wall_ms() const { return kNoon + world_.now_ms() + clock_error_ms_; }
  Caller as(const std::string& user) { return {plane_.database, user, wall_ms()}; }
  void log_action(const std::string& text) {
    if (verbose) log_.push_back(std::to_string(world_.now_ms()) + "  " + text);
  }
  void wrong(const std::string& text) {
    if (wrong_.empty()) wrong_ = "seed " + std::to_string(seed_) + ": " + text;
  }

  void maybe_killed() {
    if (in_controller_ && kill_one_in_ > 0 && draw(kill_one_in_) == 0) throw Killed{};
  }

  void pass(int64_t milliseconds) { world_.advance_to(world_.now_ms() + milliseconds); }

  void tick() {
    in_controller_ = true;
    try {
      controller_->tick(wall_ms());
    } catch (const Killed&) {
      log_action("controller killed");
      ++counts_["controller killed"];
      controller_ = std::make_unique<Controller>(plane_.database, world_);
    }
    in_controller_ = false;
    check_now();
  }

  void happen() {
    switch (draw(12)) {
      case 0:
      case 1:
      case 2:
      case 3:
      case 4: submit_one(); break;
      case 5: steer([](const Caller& c, int64_t id) { cancel(c, id); }, "cancel"); break;
      case 6: steer([](const Caller& c, int64_t id) { requeue(c, id); }, "requeue"); break;
      case 7:
        steer([&](const Caller& c, int64_t id) { set_held(c, id, draw(2) == 0); }, "hold");
        break;
      case 8:
        log_action("a launch vanishes");
        world_.lose_one();
        break;
      case 9: {
        // Hours forth, days back.
        clock_error_ms_ += static_cast<int64_t>(draw(200'000'000)) - 150'000'000;
        log_action("the clock jumps");
        break;
      }
      case 10: kill_one_in_ = draw(2) == 0 ? 0 : 3 + draw(30); break;
      default: {
        Node node = all_nodes(plane_.database)[draw(3)];
        node.drained = !node.drained;
        define_node(as("root"), node);
        log_action("drain " + node.name);
      }
    }
  }

  void submit_one() {
    const size_t who = draw(3);
    JobRequest request;
    request.name = "job";
    request.project = kProjects[who];
    request.command = {"train", "demo"};
    request.nodes = 1 + static_cast<int64_t>(draw(3));
    request.cores = static_cast<int64_t>(draw(5));
    request.priority = draw(3) == 0 ? 100 : 0;
    request.preemptible = draw(4) != 0;
    request.max_attempts = 1 + static_cast<int64_t>(draw(4));
    if (draw(4) == 0) request.time_limit_ms = 20'000 + static_cast<int64_t>(draw(200'000));
    if (draw(8) == 0) request.deadline_ms = wall_ms() + 1 + static_cast<int64_t>(draw(100'000));
    if (draw(8) == 0) request.budget.micro_usd = static_cast<int64_t>(1 + draw(100'000));
    if (draw(2) == 0) request.forecast.milliseconds = static_cast<int64_t>(draw(100'000));
    request.client_key = "key-" + std::to_string(keys_++);
    try {
      const int64_t id = submit(as(kUsers[who]), request, false).job.id;
      submitted_.insert(id);
      log_action("submit " + std::to_string(id));
      if (draw(3) == 0 && submit(as(kUsers[who]), request, false).job.id != id) {
        wrong("submitting twice made two jobs");
      }
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) wrong(error.what());
      --keys_;
    }
  }

  template <typename Call>
  void steer(Call call, const char* what) {
    if (submitted_.empty()) return;
    const int64_t id = 1 + static_cast<int64_t>(draw(submitted_.size()));
    const auto job = find_job(plane_.database, id);
    if (!job) return;
    try {
      call(as(job->user), id);
      log_action(std::string(what) + " " + std::to_string(id));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::usage) wrong(error.what());
    }
  }

  // Nothing goes wrong any more: everything that can end, ends.
  void settle() {
    world_.calm = true;
    kill_one_in_ = 0;
    clock_error_ms_ = 0;
    plane_.database.execute("UPDATE nodes SET drained = 0");
    for (int round = 0; round < 4000 && wrong_.empty(); ++round) {
      tick();
      const std::vector<Job> live = live_jobs(plane_.database);
      const bool waits_for_ever =
          std::all_of(live.begin(), live.end(), [](const Job& job) { return stuck(job); });
      if (waits_for_ever && !world_.next_event_ms()) return;
      // At most as long as the next look is away; where nothing runs, to the end of a pause.
      const bool active = std::any_of(live.begin(), live.end(),
                                      [](const Job& job) { return owns_nodes(job.state); });
      pass(active ? 1 + static_cast<int64_t>(draw(8'000)) : 20'000);
    }
    wrong("does not come to rest");
  }

  static bool stuck(const Job& job) {
    return job.state == JobState::pending &&
           (job.reason == Reason::held || job.reason == Reason::budget ||
            job.reason == Reason::quota_cores || job.reason == Reason::quota_nodes ||
            job.reason == Reason::never_fits);
  }

  void check_now() {
    // The records: no node owned beyond what it has, nothing owned by ended jobs.
    std::map<std::string, int64_t> cores;
    std::map<std::string, std::set<int64_t>> jobs;
    std::map<std::string, int64_t> nodes_used;
    std::map<std::string, int64_t> cores_used;
    std::map<int64_t, Job> live;
    for (Job& job : live_jobs(plane_.database)) live.emplace(job.id, job);
    for (const Claim& claim : all_claims(plane_.database)) {
      cores[claim.node] += claim.cores;
      const auto job = live.find(claim.job);
      if (job == live.end() || !owns_nodes(job->second.state)) {
        return wrong("job " + std::to_string(claim.job) + " has nodes and does not own any");
      }
      if (job->second.generation != claim.generation) return wrong("a claim of another generation");
      const std::string& project = job->second.request.project;
      jobs[project].insert(claim.job);
      ++nodes_used[project];
      cores_used[project] += claim.cores;
    }
    for (const auto& [node, used] : cores) {
      if (used > 4) wrong(node + " is owned twice");
    }
    for (const auto& [name, project] : projects_) {
      if (project.max_jobs && static_cast<int64_t>(jobs[name].size()) > *project.max_jobs) {
        wrong("more jobs than the quota");
      }
      if (project.max_nodes && nodes_used[name] > *project.max_nodes) {
        wrong("more nodes than the quota");
      }
      if (project.max_cores && cores_used[name] > *project.max_cores) {
        wrong("more cores than the quota");
      }
    }
    // The world: no job runs twice, no core is used twice.
    std::map<std::string, int64_t> really;
    std::set<int64_t> running;
    for (const auto& ran : world_.history()) {
      if (ran.ended_ms >= 0) continue;
      if (!running.insert(ran.job).second) {
        return wrong("job " + std::to_string(ran.job) + " runs twice");
      }
      for (const Claim& claim : ran.claims) {
        if ((really[claim.node] += claim.cores) > 4) return wrong(claim.node + " runs two jobs");
      }
    }
  }

  void check_end() {
    check_submissions();
    check_transitions();
    check_books();
  }

  void check_submissions() {
    Query count = plane_.database.query("SELECT count(*) FROM jobs");
    count.next();
    if (count.integer(0) != static_cast<int64_t>(submitted_.size())) {
      wrong("a job was lost or made up");
    }
    for (const Job& job : live_jobs(plane_.database)) {
      if (!stuck(job)) wrong("job " + std::to_string(job.id) + " was forgotten");
    }
    // A job completes by one launch that ended with 0, and nothing of it begins afterwards.
    for (const int64_t id : submitted_) {
      const auto job = find_job(plane_.database, id);
      int64_t good = 0;
      int64_t last = 0;
      for (const auto& ran : world_.history()) {
        if (ran.job != id) continue;
        if (ran.began_ms < last) wrong("two launches of a job overlap");
        last = ran.ended_ms;
        if (good > 0) wrong("a job ran again after it was done");
        good += ran.exit_code == 0 ? 1 : 0;
      }
      if ((job->state == JobState::completed) != (good == 1)) {
        wrong("job " + std::to_string(id) + " is " + state_name(job->state) + " after " +
              std::to_string(good) + " good launches");
      }
    }
  }

  // The audit log has every transition; each is legal and begins where the one before ended.
  void check_transitions() {
    std::map<int64_t, JobState> states;
    Query lines = plane_.database.query("SELECT line FROM audit ORDER BY seq");
    while (lines.next()) {
      const std::string line = lines.text(0);
      const size_t arrow = line.find(" -> ");
      if (arrow == std::string::npos) continue;
      const size_t begin = line.rfind('"', arrow) + 1;
      const JobState from = parse_state(line.substr(begin, arrow - begin));
      const JobState to = parse_state(line.substr(arrow + 4, line.find('"', arrow) - arrow - 4));
      const int64_t job = std::stoll(line.substr(line.find("\"job ") + 5));
      const auto known = states.try_emplace(job, JobState::pending).first;
      if (known->second != from || !is_legal(from, to)) {
        wrong("job " + std::to_string(job) + ": " + state_name(from) + " -> " + state_name(to));
      }
      known->second = to;
      ++counts_[line.substr(begin, line.find('"', arrow) - begin)];
    }
    for (const auto& [job, state] : states) {
      if (find_job(plane_.database, job)->state != state) wrong("the audit log has another state");
    }
  }

  // The ledger is the sum of its jobs, each launch was charged for exactly the time it ran, and no
  // budget was exceeded by more than a minute of all that a project had running.
  void check_books() {
    verify_ledger(plane_.database);
    std::map<std::string, Spend> sums;
    std::map<std::pair<int64_t, int64_t>, Spend> booked;
    for (const LedgerEntry& entry : ledger_entries(plane_.database, "", "")) {
      booked[{entry.job, entry.generation}] += entry.spend;
      sums[entry.project] += entry.spend;
    }
    std::map<std::string, Spend> minute;  // of all launches of a project: more than ran at once
    for (const auto& ran : world_.history()) {
      const auto launch = find_launch(plane_.database, ran.job, ran.generation);
      if (!launch) return wrong("a launch without a record");
      if (ran.exit_code && (booked[{ran.job, ran.generation}] !=
                            spend_of(launch->rate, ran.ended_ms - ran.began_ms))) {
        wrong("job " + std::to_string(ran.job) + " was not charged for the time it ran");
      }
      const auto job = find_job(plane_.database, ran.job);
      Spend& most = minute[job->request.project];
      const Spend one = spend_of(launch->rate, 60'000);
      most.micro_usd = std::max(most.micro_usd, one.micro_usd);
      const auto& limit = job->request.budget.micro_usd;
      if (limit && spent_by_job(plane_.database, ran.job).micro_usd > *limit + one.micro_usd) {
        wrong("job " + std::to_string(ran.job) + " is more than a minute over its budget");
      }
    }
    for (const auto& [name, project] : projects_) {
      // All three nodes for a minute.
      const int64_t most = spend_of({3, 12, 0, 3 * 3'600'000, 0, 0, 0}, 60'000).micro_usd;
      if (project.budget.micro_usd && sums[name].micro_usd > *project.budget.micro_usd + most) {
        wrong("project " + name + " is more than a minute over its budget");
      }
    }
  }

 public:
  bool verbose = false;

 private:
  SimulatedCluster& plane_;
  SimulatedWorld world_;
  uint64_t seed_;
  std::unique_ptr<Controller> controller_;
  std::map<std::string, Project> projects_;
  std::set<int64_t> submitted_;
  int64_t clock_error_ms_ = 0;
  uint64_t kill_one_in_ = 20;
  bool in_controller_ = false;
  int keys_ = 0;
  std::map<std::string, int64_t> counts_;
  std::string wrong_;
  std::vector<std::string> log_;
};

uint64_t number_from(const char* variable, uint64_t fallback) {
  const char* text = std::getenv(variable);
  return text == nullptr ? fallback : std::strtoull(text, nullptr, 10);
}

TEST(Simulation, NoHistoryBreaksTheRules) {
  if (std::getenv("TUTTI_SEED") != nullptr) {
    SimulatedCluster plane;
    History history(plane, number_from("TUTTI_SEED", 0));
    history.verbose = true;
    const std::string wrong = history.play();
    for (const std::string& line : history.log()) std::printf("%s\n", line.c_str());
    Query lines = plane.database.query("SELECT line FROM audit ORDER BY seq");
    while (lines.next()) std::printf("%s\n", lines.text(0).c_str());
    EXPECT_EQ(wrong, "");
    return;
  }
  const uint64_t seeds = number_from("TUTTI_SEEDS", 10'000);
  std::atomic<uint64_t> next{0};
  std::mutex mutex;
  std::vector<std::string> wrong;
  std::map<std::string, int64_t> counts;
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      SimulatedCluster plane;
      for (uint64_t seed = next++; seed < seeds; seed = next++) {
        History history(plane, seed);
        const std::string found = history.play();
        const std::lock_guard lock(mutex);
        for (const auto& [what, count] : history.counts()) counts[what] += count;
        if (!found.empty()) wrong.push_back(found);
        if (wrong.size() >= 10) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& each : wrong) ADD_FAILURE() << each;
  for (const auto& [what, count] : counts) std::printf("%9ld  %s\n", count, what.c_str());
  // Histories in which nothing happens prove nothing.
  for (const char* what :
       {"controller killed", "RUNNING -> COMPLETED", "RUNNING -> NODE_FAIL", "RUNNING -> FAILED",
        "RUNNING -> REQUEUED", "COMPLETING -> PREEMPTED", "COMPLETING -> TIMEOUT",
        "COMPLETING -> DEADLINE", "COMPLETING -> REQUEUED", "COMPLETING -> CANCELLED",
        "CONFIGURING -> COMPLETING", "PENDING -> CANCELLED", "PENDING -> DEADLINE"}) {
    EXPECT_GE(counts[what], static_cast<int64_t>(seeds / 100)) << what;
  }
}

}  // namespace
}  // namespace tutti::control
