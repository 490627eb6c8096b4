// A small key-value store through which ranks meet: locations, addresses, the generation. Rank 0 or
// the launcher serves it (tcp_store.h); ranks that are threads of one process share one in memory.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace tutti::comm {

class Store {
 public:
  virtual ~Store() = default;
  virtual void set(const std::string& key, const std::string& value) = 0;
  // Waits for the key. Throws peer naming key and timeout when it does not come.
  virtual std::string get(const std::string& key, double timeout_seconds) = 0;
  // Keys that start with `prefix`, sorted.
  virtual std::vector<std::string> list(const std::string& prefix) = 0;
};

std::shared_ptr<Store> make_memory_store();

}  // namespace tutti::comm
