// HTTP over real sockets with the faults of networks: it waits, resets, cuts bodies short. Requests
// are answered by a Transport such as FakeStore. One thread per connection; few of them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/object/transport.h"

namespace tutti::object {

enum class NetworkFault { none, wait, reset, truncate };

class FaultServer {
 public:
  // `fault_of` decides for request number `index` of the server; wait: `wait_seconds` before the
  // answer.
  FaultServer(std::shared_ptr<Transport> store, std::function<NetworkFault(int64_t index)> fault_of,
              double wait_seconds = 0);
  ~FaultServer();
  FaultServer(const FaultServer&) = delete;
  FaultServer& operator=(const FaultServer&) = delete;

  std::string host() const;  // "127.0.0.1:40000"
  int64_t requests() const { return requests_; }

 private:
  void accept_all();
  void serve(int connection);

  std::shared_ptr<Transport> store_;
  std::function<NetworkFault(int64_t)> fault_of_;
  double wait_seconds_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<int64_t> requests_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::vector<int> connections_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace tutti::object
