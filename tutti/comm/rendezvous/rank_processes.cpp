#include "tutti/comm/rendezvous/rank_processes.h"

#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/spawn.h"
#include "tutti/comm/rendezvous/message.h"

namespace tutti::comm {
namespace {

constexpr const char* kLauncherVariable = "TUTTI_LAUNCHER";

// Of launchers, which would speak of this process and not of its ranks.
constexpr const char* kOuterVariables[] = {"SLURM_PROCID",
                                           "SLURM_LOCALID",
                                           "SLURM_NTASKS",
                                           "SLURM_STEP_ID",
                                           "SLURM_STEP_NUM_TASKS",
                                           "OMPI_COMM_WORLD_RANK",
                                           "OMPI_COMM_WORLD_SIZE",
                                           "OMPI_COMM_WORLD_LOCAL_RANK",
                                           "OMPI_COMM_WORLD_LOCAL_SIZE",
                                           "PMIX_RANK",
                                           "PMIX_NAMESPACE",
                                           "TORCHELASTIC_RUN_ID",
                                           "TORCHELASTIC_RESTART_COUNT",
                                           "TUTTI_SECRET_FILE",
                                           "TUTTI_SESSION"};

}  // namespace

bool has_launcher() {
  return std::getenv(kLauncherVariable) != nullptr;  // NOLINT(concurrency-mt-unsafe)
}

void end_with_launcher() {
  const char* launcher = std::getenv(kLauncherVariable);  // NOLINT(concurrency-mt-unsafe)
  if (launcher == nullptr) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It may have ended before the request.
  if (std::to_string(getppid()) != launcher) _exit(128 + SIGKILL);
}

RankProcesses::RankProcesses(const std::string& program, const std::vector<std::string>& arguments,
                             int64_t ranks, const Variables& variables, uint64_t generation) {
  const std::string secret = random_token();
  const std::string session = fmt::format("environment/{}", ranks);
  store_ = std::make_shared<TcpStoreServer>("127.0.0.1", std::vector<int>{0}, session, secret);
  Environment environment = current_environment();
  for (const char* name : kOuterVariables) environment.erase(name);
  for (const auto& [name, value] : variables) environment[name] = value;
  environment[kLauncherVariable] = std::to_string(getpid());
  environment["WORLD_SIZE"] = environment["LOCAL_WORLD_SIZE"] = std::to_string(ranks);
  environment["TUTTI_STORE"] = fmt::format("127.0.0.1:{}", store_->port());
  environment["TUTTI_SECRET"] = secret;
  environment["TUTTI_GENERATION"] = std::to_string(generation);
  for (int64_t rank = 0; rank < ranks; ++rank) {
    environment["RANK"] = environment["LOCAL_RANK"] = std::to_string(rank);
    std::vector<std::string> words = {program};
    words.insert(words.end(), arguments.begin(), arguments.end());
    try {
      SpawnOptions options;
      processes_.push_back(spawn(program, words, options, &environment));
    } catch (const Error& error) {
      end_all();
      fail(ErrorKind::io, "rank {}: {}", rank, error.what());
    }
  }
}

RankProcesses::~RankProcesses() { end_all(); }

void RankProcesses::end_all() {
  for (pid_t& process : processes_) {
    if (process == 0) continue;
    kill(process, SIGKILL);
    waitpid(process, nullptr, 0);
    process = 0;
  }
}

void RankProcesses::send_signal(int64_t rank, int signal) {
  if (process(rank) != 0) kill(process(rank), signal);
}

bool RankProcesses::collect(bool block, RankExit& exit) {
  // One by one, not waitpid(-1): this process may have other children.
  do {
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      int status = 0;
      if (processes_[rank] == 0 ||
          waitpid(processes_[rank], &status, WNOHANG) != processes_[rank]) {
        continue;
      }
      processes_[rank] = 0;
      exit.rank = static_cast<int64_t>(rank);
      exit.code = WIFEXITED(status) ? WEXITSTATUS(status) : 0;
      exit.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
      return true;
    }
    if (block) sleep_seconds(0.005);
  } while (block);
  return false;
}

std::optional<RankExit> RankProcesses::poll() {
  RankExit exit;
  if (!collect(false, exit)) return std::nullopt;
  return exit;
}

int64_t RankProcesses::running() const {
  return std::count_if(processes_.begin(), processes_.end(), [](pid_t p) { return p != 0; });
}

void RankProcesses::kill_all() {
  for (const pid_t process : processes_) {
    if (process != 0) kill(process, SIGKILL);
  }
}

bool RankProcesses::is_stopped(int64_t rank) const {
  if (process(rank) == 0) return false;
  siginfo_t info = {};
  const int flags = WSTOPPED | WNOHANG | WNOWAIT;  // it stays as it is
  const auto id = static_cast<id_t>(process(rank));
  return ::waitid(P_PID, id, &info, flags) == 0 && info.si_pid == process(rank);
}

RankExit RankProcesses::wait_one() {
  TUTTI_CHECK(std::any_of(processes_.begin(), processes_.end(), [](pid_t p) { return p != 0; }),
              "no rank is left to wait for");
  RankExit exit;
  collect(true, exit);
  return exit;
}

bool RankProcesses::wait_all(double timeout_seconds, std::vector<RankExit>& exits) {
  const double end = monotonic_seconds() + timeout_seconds;
  const auto is_left = [](pid_t process) { return process != 0; };
  while (std::any_of(processes_.begin(), processes_.end(), is_left)) {
    RankExit exit;
    if (collect(false, exit)) {
      exits.push_back(exit);
      continue;
    }
    if (monotonic_seconds() > end) return false;
    sleep_seconds(0.005);
  }
  std::sort(exits.begin(), exits.end(),
            [](const RankExit& a, const RankExit& b) { return a.rank < b.rank; });
  return true;
}

}  // namespace tutti::comm
