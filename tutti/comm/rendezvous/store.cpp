#include "tutti/comm/rendezvous/store.h"

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"

namespace tutti::comm {
namespace {

class MemoryStore : public Store {
 public:
  void set(const std::string& key, const std::string& value) override {
    const std::lock_guard lock(mutex_);
    values_[key] = value;
    changed_.notify_all();
  }

  std::string get(const std::string& key, double timeout_seconds) override {
    std::unique_lock lock(mutex_);
    const bool found = changed_.wait_for(lock, std::chrono::duration<double>(timeout_seconds),
                                         [&] { return values_.count(key) > 0; });
    if (!found) {
      fail(ErrorKind::peer, "store: no {} within {}", key, format_seconds(timeout_seconds));
    }
    return values_[key];
  }

  std::vector<std::string> list(const std::string& prefix) override {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> keys;
    for (auto at = values_.lower_bound(prefix);
         at != values_.end() && starts_with(at->first, prefix); ++at) {
      keys.push_back(at->first);
    }
    return keys;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

}  // namespace

std::shared_ptr<Store> make_memory_store() { return std::make_shared<MemoryStore>(); }

}  // namespace tutti::comm
