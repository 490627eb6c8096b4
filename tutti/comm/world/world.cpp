#include "tutti/comm/world/world.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <numeric>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/hash.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/comm/gloo/group.h"
#include "tutti/comm/local/group.h"
#include "tutti/comm/nccl/group.h"

namespace tutti::comm {
namespace {

constexpr const char* kAllRanks = "world";

// A group of one rank: its calls never reach a transport.
class SoloGroup : public Group {
 public:
  explicit SoloGroup(GroupInfo info) : Group(std::move(info)) {}
  std::vector<RankActivity> activity() const override {
    RankActivity self;
    self.rank = info().world_rank();
    return {self};
  }
  void fail_with(const std::string& /*message*/) override {}

 protected:
  Ticket enqueue(engine::Stream& /*stream*/, const Call& /*call*/) override { return {}; }
  bool done(int32_t /*lane*/, uint64_t /*number*/) const override { return true; }
  void wait(engine::Stream& /*stream*/, int32_t /*lane*/, uint64_t /*number*/) override {}
};

// Between stages that follow each other, and from the last to the first where the ring is closed;
// backward the other way. Every other one first, so that they connect two by two at a time.
std::vector<GroupLink> stage_links(int64_t stages, bool closed, bool forward) {
  std::vector<GroupLink> out;
  const auto count = static_cast<int>(stages);
  const int links = closed ? count : count - 1;
  for (const int first : {0, 1}) {
    for (int stage = first; stage < links; stage += 2) {
      const int next = (stage + 1) % count;
      out.push_back(forward ? GroupLink{stage, next} : GroupLink{next, stage});
    }
  }
  return out;
}

std::string link_text(const char* path) {
  char text[256];
  const ssize_t length = readlink(path, text, sizeof text);
  return length > 0 ? std::string(text, static_cast<size_t>(length)) : std::string();
}

}  // namespace

std::string host_identity() {
  std::string text = boot_id();
  for (const char* kind : {"pid", "user", "net", "time"}) {
    text += " " + link_text((std::string("/proc/self/ns/") + kind).c_str());
  }
  return hash_hex(hash_text(text));
}

World::World(WorldOptions options) : options_(std::move(options)) {
  TUTTI_CHECK(rank() >= 0 && rank() < size(), "rank {} of {}", rank(), size());
  if (options_.host.empty()) options_.host = host_identity();
  if (size() == 1 && options_.store == nullptr) {
    hosts_ = {0};
    local_ranks_ = {0};
    return;
  }
  TUTTI_CHECK(options_.store != nullptr, "a world of {} ranks without a store", size());
  if (options_.segments == nullptr) options_.segments = make_process_segments(options_.store);
  check_generation();
  meet();
  const int count = local_size();
  const std::string memory_key = key(fmt::format("memory/{}", hosts_[static_cast<size_t>(rank())]));
  memory_ = std::make_shared<PeerMemory>(
      options_.segments->open(memory_key, PeerMemory::bytes(count), local_rank_ == 0,
                              options_.timeout_seconds),
      local_rank_, count, options_.threads && options_.direct);
}

World::~World() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  groups_.clear();  // their threads may still report failures, which closing_ drops
}

std::string World::key(const std::string& name) const {
  return fmt::format("generation-{}/{}", generation(), name);
}

void World::check_generation() {
  Store& store = *options_.store;
  uint64_t newest = 0;
  for (const std::string& entry : store.list("generation-")) {
    uint64_t number = 0;
    const std::string_view text = std::string_view(entry).substr(11);
    std::from_chars(text.data(), text.data() + text.size(), number);
    newest = std::max(newest, number);
  }
  if (generation() < newest) {
    fail(ErrorKind::peer, "rank {} came with generation {}, but the world is at generation {}",
         rank(), generation(), newest);
  }
}

// Rank 0 collects the locations of all ranks and publishes them.
void World::meet() {
  Store& store = *options_.store;
  store.set(key(fmt::format("host/{}", rank())), to_text({options_.host, options_.gpu}));
  if (rank() == 0) {
    const double end = monotonic_seconds() + options_.timeout_seconds;
    std::vector<std::string> hosts;
    try {
      for (int64_t other = 0; other < size(); ++other) {
        hosts.push_back(store.get(key(fmt::format("host/{}", other)),
                                  std::max(0.0, end - monotonic_seconds())));
      }
      store.set(key("hosts"), "+" + join(hosts, "\n"));
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::peer) throw;
      std::vector<std::string> missing;
      std::vector<std::string> arrived;
      const std::vector<std::string> keys = store.list(key("host/"));
      for (int64_t other = 0; other < size(); ++other) {
        const bool is_here =
            std::find(keys.begin(), keys.end(), key(fmt::format("host/{}", other))) != keys.end();
        (is_here ? arrived : missing).push_back(std::to_string(other));
      }
      std::string message =
          fmt::format("-rank{} {} of {} did not arrive within {}; arrived: {}",
                      missing.size() == 1 ? "" : "s", join(missing, ", "), size(),
                      format_seconds(options_.timeout_seconds), join(arrived, ", "));
      for (const std::string& refused : store.list("refused/")) {
        message += fmt::format("; refused {}", store.get(refused, 0));
      }
      store.set(key("hosts"), message);
    }
  }
  // Rank 0 gives up at its own timeout, which may have begun later than this rank's.
  const std::string answer = store.get(key("hosts"), 2 * options_.timeout_seconds + 5);
  if (answer[0] == '-') fail(ErrorKind::peer, "{}", answer.substr(1));
  std::map<std::string, int> numbers;
  std::vector<RankLocation> locations;
  for (const std::string_view text : split(std::string_view(answer).substr(1), '\n')) {
    locations.push_back(parse_rank_location(text));
    const auto number = numbers.emplace(locations.back().host, static_cast<int>(numbers.size()));
    hosts_.push_back(number.first->second);
  }
  TUTTI_CHECK(static_cast<int64_t>(hosts_.size()) == size(), "{} hosts of {} ranks", hosts_.size(),
              size());
  for (int64_t other = 0; other < size(); ++other) {
    if (hosts_[static_cast<size_t>(other)] != hosts_[static_cast<size_t>(rank())]) continue;
    if (other == rank()) local_rank_ = local_size();
    local_ranks_.push_back(other);
  }
  choose(locations);
}

void World::choose(const std::vector<RankLocation>& locations) {
  const Transport asked = options_.transport;
  if (asked == Transport::local || asked == Transport::gloo) return;
  transport_ = choose_transport(locations, has_nccl());
  if (asked == Transport::nccl && !transport_.nccl) {
    fail(ErrorKind::unsupported, "no collectives by NCCL: {}",
         transport_.why.empty() ? "no rank has a GPU" : transport_.why);
  }
  options_.transport = Transport::automatic;  // of the group of all ranks
}

std::vector<int64_t> World::all_ranks() const {
  std::vector<int64_t> ranks(static_cast<size_t>(size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

Group& World::all() { return make_group(kAllRanks, all_ranks()); }

Group& World::all_computing() {
  if (!transport_.nccl) return all();
  // Where all ranks lie along some axes, these have a group of them anyway.
  using spec::Axis;
  for (const Axes& axes : {Axes{Axis::dp, Axis::cp}, Axes{Axis::tp}, Axes{Axis::pp}}) {
    if (members(mesh(), rank(), axes) == all_ranks()) return group(axes);
  }
  return make_group("all computing", all_ranks());
}

Group& World::group(Axes axes) {
  std::vector<GroupLink> links;
  if (axes == spec::Axis::pp) {
    const bool interleaved = mesh().vpp > 1;
    links = stage_links(mesh().pp, interleaved, true);
    if (!interleaved) {  // gradients have a group of their own there
      const std::vector<GroupLink> back = stage_links(mesh().pp, false, false);
      links.insert(links.end(), back.begin(), back.end());
    }
  }
  return make_group(axes.name(), members(mesh(), rank(), axes), std::move(links));
}

Group& World::tensor_copies(int64_t count) {
  return make_group(fmt::format("{} of tp", count), comm::tensor_copies(mesh(), rank(), count));
}

Group& World::expert_replicas() {
  return make_group("expert replicas", comm::expert_replicas(mesh(), rank()));
}

Group& World::pipeline_gradients() {
  return make_group("pp gradients", members(mesh(), rank(), spec::Axis::pp),
                    stage_links(mesh().pp, true, false));
}

Group& World::pipeline_ends() { return make_group("pp ends", comm::pipeline_ends(mesh(), rank())); }

Group& World::make_group(const std::string& name, std::vector<int64_t> members,
                         std::vector<GroupLink> links) {
  for (const auto& group : groups_) {
    if (group->name() == name) return *group;
  }
  GroupInfo info;
  info.name = name;
  info.rank = static_cast<int>(std::find(members.begin(), members.end(), rank()) - members.begin());
  info.members = std::move(members);
  info.links = std::move(links);
  info.generation = generation();
  info.on_failure = [this](const std::string& message) { fail_all(message); };
  std::unique_ptr<Group> group = build_group(std::move(info));
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) group->fail_with(failure_);  // which came while the group was built
  groups_.push_back(std::move(group));
  return *groups_.back();
}

std::unique_ptr<Group> World::build_group(GroupInfo info) {
  if (info.size() == 1) return std::make_unique<SoloGroup>(std::move(info));
  if (transport_.nccl && info.name != kAllRanks) {
    const std::string prefix = key(fmt::format("group/{}/{}", info.name, info.members[0]));
    return make_nccl_group(std::move(info), options_.store, prefix, options_.device,
                           options_.timeout_seconds);
  }
  const int mine = hosts_[static_cast<size_t>(rank())];
  const auto away = std::find_if(info.members.begin(), info.members.end(), [&](int64_t member) {
    return hosts_[static_cast<size_t>(member)] != mine;
  });
  const bool one_host = away == info.members.end();
  if (options_.transport == Transport::local && !one_host) {
    fail(ErrorKind::unsupported,
         "group {}: rank {} is on another host than rank {}, which shared "
         "memory does not reach",
         info.name, *away, rank());
  }
  if (one_host && options_.transport != Transport::gloo) return build_local(std::move(info));
  return build_gloo(std::move(info));
}

std::unique_ptr<Group> World::build_local(GroupInfo info) {
  LocalGroupOptions options;
  for (const int64_t member : info.members) {
    const auto at = std::find(local_ranks_.begin(), local_ranks_.end(), member);
    options.local_ranks.push_back(static_cast<int>(at - local_ranks_.begin()));
  }
  options.create = info.rank == 0;
  options.segment = options_.segments->open(
      key(fmt::format("group/{}/{}", info.name, info.members[0])), local_group_bytes(info.size()),
      options.create, options_.timeout_seconds);
  options.info = std::move(info);
  options.threads = options_.threads;
  options.host_ranks = local_size();
  options.memory = memory_;
  options.timeout_seconds = options_.timeout_seconds;
  return std::make_unique<LocalGroup>(std::move(options));
}

std::unique_ptr<Group> World::build_gloo(GroupInfo info) {
  GlooGroupOptions options;
  options.store = options_.store;
  options.prefix = key(fmt::format("group/{}/{}", info.name, info.members[0]));
  options.address = options_.address;
  options.timeout_seconds = options_.timeout_seconds;
  if (options_.transport == Transport::automatic) {
    // The members host by host, for what they do among themselves first.
    std::map<int, std::vector<int>> by_host;
    for (int index = 0; index < info.size(); ++index) {
      const int64_t member = info.members[static_cast<size_t>(index)];
      by_host[hosts_[static_cast<size_t>(member)]].push_back(index);
    }
    const std::vector<int>& here = by_host[hosts_[static_cast<size_t>(rank())]];
    if (static_cast<int>(by_host.size()) < info.size()) {
      for (const auto& [host, members] : by_host) options.leaders.push_back(members.front());
      std::sort(options.leaders.begin(), options.leaders.end());
    }
    if (here.size() > 1) {
      GroupInfo local;
      local.name = info.name + " of one host";
      local.members.clear();
      for (const int index : here) {
        if (index == info.rank) local.rank = static_cast<int>(local.members.size());
        local.members.push_back(info.members[static_cast<size_t>(index)]);
      }
      local.generation = info.generation;
      local.on_failure = info.on_failure;
      options.local = build_local(std::move(local));
    }
  }
  options.info = std::move(info);
  return std::make_unique<GlooGroup>(std::move(options));
}

void World::share(const engine::Arena& arena) {
  if (memory_ != nullptr) memory_->share(arena);
}

void World::withdraw(const engine::Arena& arena) {
  if (memory_ != nullptr) memory_->withdraw(arena);
}

bool World::shares_arenas() const {
  const bool through_memory =
      options_.transport == Transport::automatic || options_.transport == Transport::local;
  return through_memory && !options_.threads && local_size() > 1;
}

void World::fail_all(const std::string& message) {
  const std::lock_guard lock(mutex_);
  if (closing_) return;
  if (failure_.empty()) failure_ = message;
  for (const auto& group : groups_) group->fail_with(message);
}

std::string World::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

double World::waited_seconds() const {
  const std::lock_guard lock(mutex_);
  double sum = 0;
  for (const auto& group : groups_) sum += group->waited_seconds();
  return sum;
}

std::string World::host_segment_key(const std::string& name, uint64_t generation, int host) {
  return fmt::format("generation-{}/{}/{}", generation, name, host);
}

std::shared_ptr<Segment> World::host_segment(const std::string& name, int64_t bytes) {
  if (options_.segments == nullptr) return Segment::create(bytes);  // alone
  const int host = hosts_[static_cast<size_t>(rank())];
  return options_.segments->open(host_segment_key(name, generation(), host), bytes,
                                 local_rank_ == 0, options_.timeout_seconds);
}

void World::abort(const std::string& reason) {
  Group* first = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (!groups_.empty()) first = groups_.front().get();
  }
  if (first != nullptr) {
    first->abort(reason);  // which reports it to fail_all
  } else {
    fail_all(fmt::format("aborted by rank {} before its first group: {}", rank(), reason));
  }
}

std::vector<RankActivity> World::activity() const {
  const std::lock_guard lock(mutex_);
  std::map<int64_t, RankActivity> latest;
  for (const auto& group : groups_) {
    for (const RankActivity& activity : group->activity()) {
      RankActivity& known = latest.emplace(activity.rank, activity).first->second;
      // Being inside of something says more than having left something else.
      const bool newer = activity.since_seconds > known.since_seconds;
      if (activity.inside != known.inside ? activity.inside : newer) known = activity;
    }
  }
  std::vector<RankActivity> out;
  out.reserve(latest.size());
  for (const auto& [rank, activity] : latest) out.push_back(activity);
  return out;
}

}  // namespace tutti::comm
