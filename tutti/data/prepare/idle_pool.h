// Working memory for const objects that many threads use: each call borrows what no other thread
// has, so that what it learns (cached words) serves the next call.
#pragma once

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::data {

template <typename T>
class IdlePool {
 public:
  class Lease {
   public:
    explicit Lease(IdlePool& pool) : pool_(pool), item_(pool.take()) {}
    ~Lease() { pool_.give(std::move(item_)); }
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;
    T& operator*() const { return *item_; }

   private:
    IdlePool& pool_;
    std::unique_ptr<T> item_;
  };

 private:
  std::unique_ptr<T> take() {
    {
      const std::lock_guard lock(mutex_);
      if (!idle_.empty()) {
        std::unique_ptr<T> item = std::move(idle_.back());
        idle_.pop_back();
        return item;
      }
    }
    return std::make_unique<T>();
  }
  void give(std::unique_ptr<T> item) {
    const std::lock_guard lock(mutex_);
    idle_.push_back(std::move(item));
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<T>> idle_;
};

}  // namespace tutti::data
