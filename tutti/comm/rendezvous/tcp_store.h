// The store over TCP: a server, in rank 0 or in the launcher, and clients.
//
// Client and server prove to each other that they know the secret, by an HMAC-SHA256 over random
// numbers of both; the secret itself is not sent. What follows is neither encrypted nor
// authenticated byte by byte: the store is for networks whose hosts are trusted not to forge
// packets. A client that fails is refused with a reason, which the server also keeps under the keys
// "refused/N", so that rank 0 can report why a rank did not arrive.
//
// Messages: u32 length (little-endian), then one byte for the kind and its texts, each with its
// own u32 length.
#pragma once

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "tutti/comm/rendezvous/store.h"

namespace tutti::comm {

class TcpStoreServer : public Store {
 public:
  // Listens at the first free of the ports ({0}: any): on loopback only when `address` is a
  // loopback address, else on all. Throws io naming the ports when none is free.
  TcpStoreServer(const std::string& address, const std::vector<int>& ports, std::string session,
                 std::string secret);
  ~TcpStoreServer() override;  // gives clients a second to end first

  int port() const { return port_; }

  // The server's own process needs no connection.
  void set(const std::string& key, const std::string& value) override;
  std::string get(const std::string& key, double timeout_seconds) override;
  std::vector<std::string> list(const std::string& prefix) override;

 private:
  struct Connection {
    int socket = -1;
    std::atomic<bool> ended{false};
    std::thread thread;
  };
  void accept_all();
  void serve(Connection& connection);
  void serve_requests(int socket);
  void refuse(int socket, const std::string& who, const std::string& why);

  std::string session_;
  std::string secret_;
  std::shared_ptr<Store> values_;
  int listener_ = -1;
  int port_ = 0;
  std::atomic<bool> closing_{false};
  std::atomic<int> refused_{0};
  std::atomic<int> clients_{0};        // connected and welcome
  std::list<Connection> connections_;  // of the accepting thread, until it has ended
  std::thread thread_;
};

// Tries the ports until one has a store of this session, or the timeout is over: throws peer saying
// what it found; permission when the secret is refused.
std::shared_ptr<Store> connect_store(const std::string& address, const std::vector<int>& ports,
                                     const std::string& session, const std::string& secret,
                                     int64_t rank, double timeout_seconds);

// The address of this host's interface through which `address` is reached, as a number. Throws peer
// when there is none.
std::string address_towards(const std::string& address);

}  // namespace tutti::comm
