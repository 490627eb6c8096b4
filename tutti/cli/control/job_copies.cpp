#include "tutti/cli/control/job_copies.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <memory>

#include "tutti/base/child_process.h"
#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/comm/rendezvous/launch_environment.h"
#include "tutti/comm/rendezvous/slurm_step.h"
#include "tutti/launch/supervisor.h"
#include "tutti/train/session/peer_copies.h"

namespace tutti::cli {
namespace {

constexpr const char* kOption = "--peer-copies";
constexpr double kSweepSeconds = 20;

// The word after `option`; empty: it is not there.
std::string value_of(const std::vector<std::string>& words, const std::string& option) {
  const auto at = std::find(words.begin(), words.end(), option);
  return at == words.end() || at + 1 == words.end() ? std::string() : *(at + 1);
}

void sweep_nodes() {
  std::vector<std::string> nodes = comm::slurm_job_nodes();
  for (const std::string& dead : comm::dead_slurm_nodes(nodes)) std::erase(nodes, dead);
  const std::string program = std::filesystem::read_symlink(kThisExecutable);
  const std::vector<int> codes = comm::run_on_slurm_nodes(
      nodes, fmt::format("exec '{}' {}", program, kSweepVerb), kSweepSeconds);
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (codes[i] == exit_ok) continue;
    print_message(fmt::format(
        "tutti: copies in the memory of {} may be left until the next run there (exit code {})\n",
        nodes[i], codes[i]));
  }
}

template <typename Body>
void report_failure(const Body& body) noexcept {
  try {
    body();
  } catch (const std::exception& error) {
    print_message(fmt::format("tutti: peer copies may be left: {}\n", error.what()));
  }
}

}  // namespace

int64_t copies_of_job(int64_t asked, int64_t nodes, const spec::Recipe& recipe) {
  if (asked >= 0) return asked;
  // A device's steps are short beside the exchange of its state.
  return nodes > 1 && recipe.device == "cpu" ? 1 : 0;
}

int64_t copies_of_job_set(int64_t asked) {
  if (asked > 0) {
    fail(ErrorKind::usage,
         "--peer-copies {}: a JobSet starts again in new pods, whose memory is empty; give 0, or "
         "--as pytorchjob",
         asked);
  }
  return 0;
}

int64_t copies_of_words(const std::vector<std::string>& words) {
  return std::atoll(value_of(words, kOption).c_str());
}

std::string copies_text(int64_t steps) {
  if (steps == 0) return "none";
  return steps == 1 ? "of every step" : fmt::format("every {} steps", steps);
}

void clear_job_copies(const std::vector<std::string>& words,
                      std::optional<int> exit_code) noexcept {
  report_failure([&] {
    if (copies_of_words(words) == 0) return;
    train::forget_peer_copies(posix_file_system(), value_of(words, "--run"));
    if (exit_code == exit_requeue) return;  // and their supervisor is waiting
    if (comm::read_process_variable("SLURM_JOB_ID")) {
      sweep_nodes();
    } else {
      train::sweep_peer_copies(posix_file_system(), launch::memory_root());
    }
  });
}

void forget_job_copies(const std::string& run_folder) noexcept {
  report_failure([&] {
    if (run_folder.empty()) return;
    train::forget_peer_copies(posix_file_system(), run_folder);
    train::sweep_peer_copies(posix_file_system(), launch::memory_root());
  });
}

void add_sweep_copies(CLI::App& app, Action& action) {
  app.add_subcommand(kSweepVerb, "")->group("")->callback([&action] {
    action = [] {
      train::sweep_peer_copies(posix_file_system(), launch::memory_root());
      return static_cast<int>(exit_ok);
    };
  });
}

}  // namespace tutti::cli
