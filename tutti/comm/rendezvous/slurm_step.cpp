#include "tutti/comm/rendezvous/slurm_step.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <map>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/command.h"
#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/spawn.h"
#include "tutti/base/text.h"
#include "tutti/comm/rendezvous/launch_environment.h"
#include "tutti/comm/rendezvous/message.h"

namespace tutti::comm {
namespace {

constexpr double kToolSeconds = 30;        // scontrol waits for slurmctld
constexpr int kAnswerMilliseconds = 2000;  // of a slurmd on a connection
constexpr double kKillSeconds = 3;         // srun may wait for a node that is gone
constexpr const char* kDefaultPort = "6818";

// What an outer launcher, or sbatch, said about itself, and would be taken for this step's.
bool is_outer(const std::string& name) {
  for (const char* kept :
       {"SLURM_JOB_ID", "SLURM_JOBID", "SLURM_CONF", "SLURM_JOB_NODELIST", "SLURM_NODELIST",
        "SLURM_JOB_NUM_NODES", "SLURM_JOB_CPUS_PER_NODE", "SLURM_CPUS_ON_NODE",
        "SLURM_RESTART_COUNT", "SLURM_CLUSTER_NAME", "SLURM_WORKING_CLUSTER"}) {
    if (name == kept) return false;
  }
  for (const char* prefix :
       {"SLURM_", "SLURMD_", "SRUN_", "OMPI_COMM_", "PMIX_", "TORCHELASTIC_"}) {
    if (starts_with(name, prefix)) return true;
  }
  for (const char* outer : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR",
                            "MASTER_PORT", "TUTTI_SECRET_FILE", "TUTTI_LAUNCHER"}) {
    if (name == outer) return true;
  }
  return false;
}

std::string own_address() {
  if (const auto address = read_process_variable("MASTER_ADDR")) return *address;
  return describe_machine().host;
}

// Of the node that has the fewest, what each of its ranks may have.
int64_t cores_per_rank(int64_t ranks_per_node) {
  const auto cores = read_process_variable("SLURM_CPUS_ON_NODE");
  const int64_t count = cores ? std::atoll(cores->c_str()) : 1;
  return std::max<int64_t>(1, count / std::max<int64_t>(1, ranks_per_node));
}

std::vector<std::string> srun_words(const std::vector<std::string>& nodes, int64_t tasks) {
  return {"srun",
          "--export=ALL",
          fmt::format("--nodes={}", nodes.size()),
          fmt::format("--ntasks={}", tasks),
          fmt::format("--ntasks-per-node={}", tasks / static_cast<int64_t>(nodes.size())),
          fmt::format("--nodelist={}", join(nodes, ",")),
          "--distribution=block",
          "--overlap",
          "--overcommit",
          "--mpi=none",
          "--input=none"};
}

std::map<std::string, std::string> fields_of(std::string_view line) {
  std::map<std::string, std::string> fields;
  for (const std::string_view word : split(line, ' ')) {
    const size_t equals = word.find('=');
    if (equals == std::string_view::npos) continue;
    fields.emplace(word.substr(0, equals), word.substr(equals + 1));
  }
  return fields;
}

// Whether a server accepts connections there.
bool answers(const std::string& address, const std::string& port) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), port.c_str(), &hints, &found) != 0) return false;
  bool answered = false;
  for (const addrinfo* at = found; at != nullptr && !answered; at = at->ai_next) {
    const int socket = ::socket(at->ai_family, at->ai_socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (socket < 0) continue;
    if (::connect(socket, at->ai_addr, at->ai_addrlen) == 0) {
      answered = true;
    } else if (errno == EINPROGRESS) {
      pollfd ready{socket, POLLOUT, 0};
      int error = 0;
      socklen_t size = sizeof error;
      answered = ::poll(&ready, 1, kAnswerMilliseconds) == 1 &&
                 ::getsockopt(socket, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
    }
    ::close(socket);
  }
  ::freeaddrinfo(found);
  return answered;
}

// "DOWN*+DRAIN" and the like: nothing can run there any more. One that is being drained continues
// with the job that it has.
bool gave_up(const std::string& state) {
  for (const char* bad : {"DOWN", "FAIL", "POWERED_DOWN", "POWERING_DOWN"}) {
    if (state.find(bad) != std::string::npos) return true;
  }
  return false;
}

}  // namespace

SlurmStep::SlurmStep(const SlurmStepOptions& options)
    : ranks_(static_cast<int64_t>(options.nodes.size()) * options.ranks_per_node) {
  const std::string secret = random_token();
  const std::string session = fmt::format("slurm-step/{}/{}", options.generation, random_token());
  const std::string address = own_address();
  store_ = std::make_shared<TcpStoreServer>(address, std::vector<int>{0}, session, secret);
  Environment environment = current_environment();
  std::erase_if(environment, [](const auto& entry) { return is_outer(entry.first); });
  for (const auto& [name, value] : options.variables) environment[name] = value;
  environment["TUTTI_STORE"] = fmt::format("{}:{}", address, store_->port());
  environment["TUTTI_SESSION"] = session;
  environment["TUTTI_SECRET"] = secret;
  environment["TUTTI_GENERATION"] = std::to_string(options.generation);
  std::vector<std::string> words = srun_words(options.nodes, ranks_);
  const int64_t cores = cores_per_rank(options.ranks_per_node);
  // A rank that fails ends the others by itself, and in an orderly way; srun waits for them.
  words.insert(words.end(), {fmt::format("--cpus-per-task={}", cores), "--kill-on-bad-exit=0",
                             "--wait=60", options.program});
  words.insert(words.end(), options.arguments.begin(), options.arguments.end());
  SpawnOptions spawning;
  process_ = spawn({}, words, spawning, &environment);
}

SlurmStep::~SlurmStep() {
  if (process_ == 0) return;
  ::kill(process_, SIGTERM);
  for (double end = monotonic_seconds() + kKillSeconds; monotonic_seconds() < end;) {
    if (::waitpid(process_, nullptr, WNOHANG) == process_) return;
    sleep_seconds(0.02);
  }
  ::kill(process_, SIGKILL);
  ::waitpid(process_, nullptr, 0);
}

void SlurmStep::send_signal(int64_t rank, int signal) {
  if (process_ == 0 || rank != 0) return;
  const bool is_passed_on = signal == SIGUSR1 || signal == SIGUSR2;
  ::kill(process_, is_passed_on ? signal : SIGUSR2);
}

std::optional<RankExit> SlurmStep::poll() {
  if (process_ != 0) {
    if (killed_at_ > 0 && monotonic_seconds() - killed_at_ > kKillSeconds) {
      ::kill(process_, SIGKILL);
    }
    if (::waitpid(process_, &status_, WNOHANG) != process_) return std::nullopt;
    process_ = 0;
  }
  if (given_ == ranks_) return std::nullopt;
  RankExit exit;
  exit.rank = given_++;
  exit.is_own = ranks_ == 1;
  exit.code = WIFEXITED(status_) ? WEXITSTATUS(status_) : 0;
  exit.signal = WIFSIGNALED(status_) ? WTERMSIG(status_) : 0;
  if (exit.code > 128) {  // srun's way to say it
    exit.signal = exit.code - 128;
    exit.code = 0;
  }
  return exit;
}

void SlurmStep::kill_all() {
  if (process_ == 0 || killed_at_ > 0) return;
  killed_at_ = monotonic_seconds();
  ::kill(process_, SIGTERM);  // srun kills its tasks at once
}

std::vector<std::string> slurm_job_nodes() {
  const auto nodes = read_process_variable("SLURM_JOB_NODELIST");
  if (!read_process_variable("SLURM_JOB_ID") || !nodes) {
    fail(ErrorKind::usage,
         "--ranks-per-node: not a Slurm job (SLURM_JOB_ID, SLURM_JOB_NODELIST); use it in a "
         "script for sbatch");
  }
  return expand_hosts(*nodes);
}

std::vector<std::string> dead_slurm_nodes(const std::vector<std::string>& nodes) {
  const CommandResult shown =
      run_command({"scontrol", "show", "node", "--oneliner", join(nodes, ",")}, kToolSeconds);
  if (!shown.ok()) return {};  // slurmctld is down; srun will report it
  std::vector<std::string> dead;
  for (const std::string_view line : split(shown.output, '\n')) {
    auto fields = fields_of(line);
    const std::string name = fields["NodeName"];
    if (name.empty()) continue;
    const std::string port = fields["Port"].empty() ? kDefaultPort : fields["Port"];
    if (gave_up(fields["State"]) || !answers(fields["NodeAddr"], port)) dead.push_back(name);
  }
  return dead;
}

std::vector<int> run_on_slurm_nodes(const std::vector<std::string>& nodes,
                                    const std::string& command, double timeout_seconds) {
  std::vector<int> codes(nodes.size());
  std::vector<std::thread> threads;
  for (size_t i = 0; i < nodes.size(); ++i) {
    threads.emplace_back([&, i] {
      // The name of this node would hide that of the one where the command runs.
      std::vector<std::string> words = {"env", "-u", "SLURMD_NODENAME"};
      const std::vector<std::string> srun = srun_words({nodes[i]}, 1);
      words.insert(words.end(), srun.begin(), srun.end());
      words.insert(words.end(), {"sh", "-c", command});
      try {
        const CommandResult result = run_command(words, timeout_seconds);
        codes[i] = result.in_time ? result.exit_code : 124;
      } catch (const Error&) {
        codes[i] = 127;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return codes;
}

}  // namespace tutti::comm
