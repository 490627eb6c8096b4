#include "tutti/comm/testing/on_host/launches.h"

#include <mutex>
#include <thread>

#include "tutti/base/check.h"

namespace tutti::comm::on_host {
namespace {

std::mutex taken_mutex;
// Of each device: the launching thread, and how many launches it has begun.
std::map<int, std::pair<std::thread::id, int>>& taken() {
  static auto& out = *new std::map<int, std::pair<std::thread::id, int>>;
  return out;
}

}  // namespace

std::shared_ptr<Launch> Launches::add(int device) {
  auto launch = std::make_shared<Launch>();
  std::shared_ptr<Launch>& last = last_[device];
  if (last != nullptr && !last->has_started) launch->before = last;
  last = launch;
  return launch;
}

void Launches::start(Launch& launch) {
  launch.has_started = true;
  launch.before = nullptr;
}

void Launches::note(int device, const std::set<int>& devices, const Collective& collective) {
  if (forgotten_.count(collective.owner) > 0) return;
  for (const int other : devices) {
    if (other == device) continue;
    std::deque<Collective>& theirs = ahead_[{other, device}];
    if (theirs.empty()) {
      ahead_[{device, other}].push_back(collective);
      continue;
    }
    TUTTI_CHECK(theirs.front().exchange == collective.exchange,
                "devices launch in different orders: {} launches {} where {} has launched {}",
                device, collective.what, other, theirs.front().what);
    theirs.pop_front();
  }
}

void Launches::forget(const void* owner) {
  forgotten_.insert(owner);
  for (auto& [devices, ahead] : ahead_) {
    std::erase_if(ahead, [&](const Collective& one) { return one.owner == owner; });
  }
}

LaunchingThread::LaunchingThread(int device) : device_(device) {
  const std::lock_guard lock(taken_mutex);
  auto& [thread, depth] = taken()[device];
  is_alone_ = depth == 0 || thread == std::this_thread::get_id();
  if (!is_alone_) return;
  thread = std::this_thread::get_id();
  ++depth;
}

LaunchingThread::~LaunchingThread() {
  if (!is_alone_) return;
  const std::lock_guard lock(taken_mutex);
  --taken()[device_].second;
}

}  // namespace tutti::comm::on_host
