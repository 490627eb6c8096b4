#include "tutti/comm/rendezvous/launch_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/hash.h"
#include "tutti/base/text.h"
#include "tutti/comm/rendezvous/tcp_store.h"

namespace tutti::comm {
namespace {

int64_t parse_number(const std::string& name, const std::string& value) {
  int64_t number = -1;
  const char* end = value.data() + value.size();
  const auto result = std::from_chars(value.data(), end, number);
  if (result.ec != std::errc() || result.ptr != end || number < 0) {
    fail(ErrorKind::usage, "{}={}: expected a whole number", name, value);
  }
  return number;
}

// One quantity from several variables: the first that is set, the others must agree.
class Quantity {
 public:
  Quantity(const ReadVariable& read, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
      const std::optional<std::string> text = read(name);
      if (!text) continue;
      const int64_t number = parse_number(name, *text);
      if (name_.empty()) {
        name_ = name;
        number_ = number;
      } else if (number != number_) {
        fail(ErrorKind::usage, "{}={} and {}={} disagree: unset what is not of this launcher",
             name_, number_, name, number);
      }
    }
  }
  bool is_set() const { return !name_.empty(); }
  const std::string& name() const { return name_; }
  int64_t value_or(int64_t other) const { return is_set() ? number_ : other; }

 private:
  std::string name_;
  int64_t number_ = 0;
};

struct Launchers {
  bool torchrun = false;
  bool slurm = false;
  bool mpirun = false;
};

Launchers find_launchers(const ReadVariable& read) {
  Launchers found;
  found.torchrun = read("TORCHELASTIC_RUN_ID").has_value();
  found.mpirun = !found.torchrun && read("OMPI_COMM_WORLD_SIZE").has_value();
  const bool batch_script = read("SLURM_JOB_ID").has_value() && !read("SLURM_STEP_ID").has_value();
  found.slurm =
      !found.torchrun && !found.mpirun && read("SLURM_PROCID").has_value() && !batch_script;
  return found;
}

void read_rank_variables(const ReadVariable& read, const Launchers& launchers,
                         LaunchEnvironment& out) {
  std::vector<std::string> rank = {"RANK"};
  std::vector<std::string> size = {"WORLD_SIZE"};
  std::vector<std::string> local_rank = {"LOCAL_RANK"};
  std::vector<std::string> local_size = {"LOCAL_WORLD_SIZE"};
  if (launchers.slurm) {
    rank.emplace_back("SLURM_PROCID");
    size.emplace_back(read("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS");
    local_rank.emplace_back("SLURM_LOCALID");
  }
  if (!launchers.torchrun) {
    rank.insert(rank.end(), {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"});
    size.emplace_back("OMPI_COMM_WORLD_SIZE");
    local_rank.emplace_back("OMPI_COMM_WORLD_LOCAL_RANK");
    local_size.emplace_back("OMPI_COMM_WORLD_LOCAL_SIZE");
  }
  const Quantity the_rank(read, rank);
  const Quantity the_size(read, size);
  const Quantity the_local_rank(read, local_rank);
  const Quantity the_local_size(read, local_size);
  if (the_rank.is_set() != the_size.is_set()) {
    // PMIx alone names a rank, and no number of ranks: a process started on its own has rank 0.
    if (the_rank.name() == "PMIX_RANK" && the_rank.value_or(0) == 0) return;
    fail(ErrorKind::usage, "{} is set, but the {} is not: set RANK and WORLD_SIZE, or neither",
         the_rank.is_set() ? the_rank.name() : the_size.name(),
         the_rank.is_set() ? "number of ranks (WORLD_SIZE)" : "rank (RANK)");
  }
  out.rank = the_rank.value_or(0);
  out.size = the_size.value_or(1);
  if (out.size < 1 || out.rank >= out.size) {
    fail(ErrorKind::usage, "{}={} is not below {}={}", the_rank.name(), out.rank, the_size.name(),
         out.size);
  }
  // A launcher that does not say runs all ranks on one host, or one on each.
  out.local_rank = the_local_rank.value_or(0);
  out.local_size = the_local_size.value_or(the_local_rank.is_set() ? 0 : 1);
  if (out.local_size > 0 && out.local_rank >= out.local_size) {
    fail(ErrorKind::usage, "{}={} is not below {}={}", the_local_rank.name(), out.local_rank,
         the_local_size.is_set() ? the_local_size.name() : "LOCAL_WORLD_SIZE", out.local_size);
  }
}

void read_store(const ReadVariable& read, const Launchers& launchers, LaunchEnvironment& out) {
  const auto ports_from = [&](int64_t first, int count) {
    for (int i = 0; i < count; ++i) out.ports.push_back(static_cast<int>(first + i));
  };
  if (const auto store = read("TUTTI_STORE")) {
    const size_t colon = store->rfind(':');
    if (colon == std::string::npos) {
      fail(ErrorKind::usage, "TUTTI_STORE={}: expected host:port", *store);
    }
    out.address = store->substr(0, colon);
    out.ports = {static_cast<int>(parse_number("TUTTI_STORE", store->substr(colon + 1)))};
    out.store_is_served = true;
    return;
  }
  const bool one_host = out.local_size == out.size;
  const std::string job = read("SLURM_JOB_ID").value_or("");
  const std::string name_space = read("PMIX_NAMESPACE").value_or("");
  if (const auto address = read("MASTER_ADDR")) {
    out.address = *address;
  } else if (launchers.slurm && (read("SLURM_STEP_NODELIST") || read("SLURM_JOB_NODELIST"))) {
    out.address =
        expand_hosts(read("SLURM_STEP_NODELIST").value_or(read("SLURM_JOB_NODELIST").value_or("")))
            .front();
  } else if (one_host) {
    out.address = "127.0.0.1";
  } else {
    fail(ErrorKind::usage,
         "MASTER_ADDR is not set: {} ranks need the address of the host of rank 0", out.size);
  }
  constexpr uint64_t kFirst = 20000;  // below the ports that systems give out on their own
  constexpr uint64_t kRange = 10000;
  if (const auto port = read("MASTER_PORT")) {
    const int64_t number = parse_number("MASTER_PORT", *port);
    if (number < 1 || number + kStorePorts > 65535) {
      fail(ErrorKind::usage, "MASTER_PORT={}: expected 1 to {}", number, 65535 - kStorePorts);
    }
    launchers.torchrun ? ports_from(number + 1, kStorePorts) : ports_from(number, 1);
  } else if (launchers.slurm && !job.empty()) {
    ports_from(static_cast<int64_t>(kFirst + hash_text(out.session) % kRange), kStorePorts);
  } else if (!name_space.empty()) {
    ports_from(static_cast<int64_t>(kFirst + hash_text(name_space) % kRange), kStorePorts);
  } else {
    fail(ErrorKind::usage, "MASTER_PORT is not set: {} ranks need a port of the host of rank 0",
         out.size);
  }
}

std::string read_secret(const ReadVariable& read) {
  const auto secret = read("TUTTI_SECRET");
  const auto path = read("TUTTI_SECRET_FILE");
  if (!path) return secret.value_or("");
  const std::string from_file(trim(read_file(posix_file_system(), *path)));
  if (from_file.empty()) fail(ErrorKind::usage, "TUTTI_SECRET_FILE={}: the file is empty", *path);
  if (secret && *secret != from_file) {
    fail(ErrorKind::usage, "TUTTI_SECRET and TUTTI_SECRET_FILE={} disagree", *path);
  }
  return from_file;
}

}  // namespace

std::optional<std::string> read_process_variable(const std::string& name) {
  const char* value = std::getenv(name.c_str());  // NOLINT(concurrency-mt-unsafe)
  if (value == nullptr || *value == 0) return std::nullopt;
  return std::string(value);
}

LaunchEnvironment read_launch_environment(const ReadVariable& read) {
  LaunchEnvironment out;
  const Launchers launchers = find_launchers(read);
  read_rank_variables(read, launchers, out);
  out.launcher = launchers.torchrun              ? "torchrun"
                 : launchers.slurm               ? "slurm"
                 : launchers.mpirun              ? "mpirun"
                 : read("RANK").has_value()      ? "environment"
                 : read("PMIX_RANK").has_value() ? "pmix"
                                                 : "none";
  const int64_t restarts =
      launchers.torchrun ? parse_number("TORCHELASTIC_RESTART_COUNT",
                                        read("TORCHELASTIC_RESTART_COUNT").value_or("0"))
      : launchers.slurm
          ? parse_number("SLURM_RESTART_COUNT", read("SLURM_RESTART_COUNT").value_or("0"))
          : 0;
  out.generation = static_cast<uint64_t>(std::max<int64_t>(
      1, read("TUTTI_GENERATION") ? parse_number("TUTTI_GENERATION", *read("TUTTI_GENERATION"))
                                  : restarts + 1));
  std::vector<std::string> session = {out.launcher, std::to_string(out.size)};
  for (const char* name : {"TORCHELASTIC_RUN_ID", "SLURM_JOB_ID", "SLURM_STEP_ID"}) {
    if (launchers.torchrun || launchers.slurm) session.push_back(read(name).value_or(""));
  }
  if (launchers.torchrun) session.push_back(std::to_string(restarts));
  out.session = read("TUTTI_SESSION").value_or(join(session, "/"));
  if (out.size == 1) return out;
  read_store(read, launchers, out);
  out.secret = read_secret(read);
  const bool loopback = out.address == "127.0.0.1" || out.address == "localhost";
  if (out.secret.empty() && !loopback) {
    fail(ErrorKind::usage,
         "{} ranks meet at {}: set TUTTI_SECRET, or TUTTI_SECRET_FILE, to one secret on all of "
         "them",
         out.size, out.address);
  }
  return out;
}

std::vector<std::string> expand_hosts(const std::string& hosts) {
  const auto wrong = [&](const char* why) {
    fail(ErrorKind::usage, "host list {}: {}; expected such as n[01-03,7],login", hosts, why);
  };
  // Commas outside of brackets separate.
  std::vector<std::string> out;
  size_t begin = 0;
  while (begin < hosts.size()) {
    const size_t end = hosts.find_first_of(",[", begin);
    const std::string prefix = hosts.substr(begin, end == std::string::npos ? end : end - begin);
    if (end == std::string::npos || hosts[end] == ',') {
      if (prefix.empty()) wrong("an empty name");
      out.push_back(prefix);
      begin = end == std::string::npos ? hosts.size() : end + 1;
      continue;
    }
    const size_t close = hosts.find(']', end);
    if (close == std::string::npos) wrong("a bracket is not closed");
    const size_t next = hosts.find(',', close);
    const size_t stop = next == std::string::npos ? hosts.size() : next;
    const std::string suffix = hosts.substr(close + 1, stop - close - 1);
    if (suffix.find('[') != std::string::npos) wrong("more than one bracket in a name");
    for (const std::string_view range :
         split(std::string_view(hosts).substr(end + 1, close - end - 1), ',')) {
      const size_t dash = range.find('-');
      const std::string first(range.substr(0, dash));
      const std::string last(dash == std::string_view::npos ? first : range.substr(dash + 1));
      const int64_t from = parse_number("host list", first);
      const int64_t to = parse_number("host list", last);
      if (to < from || to - from > 1'000'000) wrong("a range that is not ascending");
      for (int64_t number = from; number <= to; ++number) {
        out.push_back(fmt::format("{}{:0{}}{}", prefix, number, first.size(), suffix));
      }
    }
    begin = stop + 1;
  }
  if (out.empty()) wrong("it is empty");
  return out;
}

std::shared_ptr<Store> meet_at_store(const LaunchEnvironment& environment, double timeout_seconds) {
  if (environment.size == 1) return nullptr;
  if (environment.rank == 0 && !environment.store_is_served) {
    return std::make_shared<TcpStoreServer>(environment.address, environment.ports,
                                            environment.session, environment.secret);
  }
  return connect_store(environment.address, environment.ports, environment.session,
                       environment.secret, environment.rank, timeout_seconds);
}

std::unique_ptr<World> join_world(const LaunchEnvironment& environment, const spec::Mesh& mesh,
                                  double timeout_seconds, Transport transport) {
  return join_world(environment, mesh, meet_at_store(environment, timeout_seconds), timeout_seconds,
                    transport);
}

std::unique_ptr<World> join_world(const LaunchEnvironment& environment, const spec::Mesh& mesh,
                                  std::shared_ptr<Store> store, double timeout_seconds,
                                  Transport transport, const std::string& gpu, int device) {
  if (mesh.world() != environment.size) {
    fail(ErrorKind::usage,
         "parallel: dp {} x tp {} x pp {} x cp {} are {} ranks, but the launcher ({}) started {}",
         mesh.dp, mesh.tp, mesh.pp, mesh.cp, mesh.world(), environment.launcher, environment.size);
  }
  WorldOptions options;
  options.rank = environment.rank;
  options.mesh = mesh;
  options.generation = environment.generation;
  options.timeout_seconds = timeout_seconds;
  options.transport = transport;
  options.store = std::move(store);
  options.gpu = gpu;
  options.device = device;
  if (environment.size > 1) options.address = address_towards(environment.address);
  return std::make_unique<World>(std::move(options));
}

}  // namespace tutti::comm
