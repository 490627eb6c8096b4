// HTTP and TLS by libcurl: connections are kept and used again, one thread per request in progress.
// Proxies are those of the environment (https_proxy, no_proxy). Redirects are not followed.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tutti/object/transport.h"

namespace tutti::object {

struct TransportLimits {
  double connect_seconds = 10;
  double stall_seconds = 30;  // without a byte in either direction
};

class CurlTransport final : public Transport {
 public:
  // `ca_bundle`: file of trusted certificates; empty: the system's.
  explicit CurlTransport(std::string ca_bundle = "", const TransportLimits& limits = {});
  ~CurlTransport() override;
  CurlTransport(const CurlTransport&) = delete;
  CurlTransport& operator=(const CurlTransport&) = delete;

  Response send(const Request& request) override;

 private:
  void* take_handle();
  void give_back(void* handle);

  const std::string ca_bundle_;
  const TransportLimits limits_;
  std::mutex mutex_;
  std::vector<void*> idle_;  // CURL*, with their connections
};

}  // namespace tutti::object
