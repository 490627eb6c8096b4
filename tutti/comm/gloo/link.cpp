#include "tutti/comm/gloo/link.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/unbound_buffer.h>

#include <atomic>
#include <chrono>
#include <exception>
#include <mutex>
#include <set>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/comm/rendezvous/message.h"

namespace tutti::comm {
namespace {

using gloo::transport::UnboundBuffer;

// Waiting is as long as it takes: a rank may compute. Failures end connections, and so does the
// system where a host does not answer (comm/rendezvous/message.h).
constexpr std::chrono::milliseconds kForever = std::chrono::hours(24 * 30);

// Gloo exchanges addresses through a store of its own interface.
class StoreOfGloo : public gloo::rendezvous::Store {
 public:
  StoreOfGloo(comm::Store& store, std::string prefix, double timeout_seconds)
      : store_(store), prefix_(std::move(prefix)), timeout_seconds_(timeout_seconds) {}
  void set(const std::string& key, const std::vector<char>& data) override {
    store_.set(prefix_ + key, {data.begin(), data.end()});
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_.get(prefix_ + key, timeout_seconds_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) store_.get(prefix_ + key, timeout_seconds_);
  }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds&) override {
    wait(keys);
  }

 private:
  comm::Store& store_;
  std::string prefix_;
  double timeout_seconds_;
};

}  // namespace

struct GlooLink::Impl {
  std::shared_ptr<gloo::rendezvous::Context> context;
  std::mutex mutex;
  std::atomic<bool> interrupted{false};
  std::set<UnboundBuffer*> waiting;  // to be woken by interrupt()
};

struct GlooLink::Transfer::State {
  std::shared_ptr<Impl> impl;
  std::unique_ptr<UnboundBuffer> buffer;
  int peer = 0;
  bool sends = false;
};

GlooLink::GlooLink(Store& store, const std::string& prefix, const std::string& address, int rank,
                   int size, double timeout_seconds)
    : impl_(std::make_shared<Impl>()) {
  try {
    gloo::transport::tcp::attr attributes;
    attributes.hostname = address;
    std::shared_ptr<gloo::transport::Device> device =
        gloo::transport::tcp::CreateDevice(attributes);
    impl_->context = std::make_shared<gloo::rendezvous::Context>(rank, size);
    impl_->context->setTimeout(
        std::chrono::milliseconds(static_cast<int64_t>(timeout_seconds * 1000)));
    StoreOfGloo gloo_store(store, prefix, timeout_seconds);
    impl_->context->connectFullMesh(gloo_store, device);
    end_all_when_lost();
  } catch (const std::exception& error) {
    fail(ErrorKind::peer, "rank {} of {} listening at {} cannot connect to the others: {}", rank,
         size, address, error.what());
  }
}

GlooLink::~GlooLink() = default;

GlooLink::Transfer::~Transfer() = default;
GlooLink::Transfer::Transfer(Transfer&&) noexcept = default;
GlooLink::Transfer& GlooLink::Transfer::operator=(Transfer&&) noexcept = default;

GlooLink::Transfer GlooLink::send(const void* data, int64_t bytes, int peer, uint64_t tag) {
  Transfer transfer;
  if (bytes == 0) return transfer;
  transfer.state_ = std::make_unique<Transfer::State>();
  transfer.state_->impl = impl_;
  transfer.state_->peer = peer;
  transfer.state_->sends = true;
  try {
    transfer.state_->buffer =
        impl_->context->createUnboundBuffer(const_cast<void*>(data), static_cast<size_t>(bytes));
    transfer.state_->buffer->send(peer, tag);
  } catch (const std::exception& error) {
    fail(ErrorKind::peer, "the connection to rank {} is lost: {}", peer, error.what());
  }
  return transfer;
}

GlooLink::Transfer GlooLink::receive(void* data, int64_t bytes, int peer, uint64_t tag) {
  Transfer transfer;
  if (bytes == 0) return transfer;
  transfer.state_ = std::make_unique<Transfer::State>();
  transfer.state_->impl = impl_;
  transfer.state_->peer = peer;
  try {
    transfer.state_->buffer = impl_->context->createUnboundBuffer(data, static_cast<size_t>(bytes));
    transfer.state_->buffer->recv(peer, tag);
  } catch (const std::exception& error) {
    fail(ErrorKind::peer, "the connection to rank {} is lost: {}", peer, error.what());
  }
  return transfer;
}

void GlooLink::Transfer::wait() {
  if (state_ == nullptr) return;
  UnboundBuffer* buffer = state_->buffer.get();
  Impl& impl = *state_->impl;
  {
    const std::lock_guard lock(impl.mutex);
    if (impl.interrupted) fail(ErrorKind::peer, "interrupted");
    impl.waiting.insert(buffer);
  }
  bool arrived = false;
  std::string why;
  try {
    // Without a time gloo takes the one within which connections had to be made.
    arrived = state_->sends ? buffer->waitSend(kForever) : buffer->waitRecv(kForever);
  } catch (const std::exception& error) {
    why = error.what();
  }
  {
    const std::lock_guard lock(impl.mutex);
    impl.waiting.erase(buffer);
  }
  if (!arrived) {
    fail(ErrorKind::peer, "the connection to rank {} is lost ({})", state_->peer,
         why.empty() ? "interrupted" : why);
  }
  state_.reset();
}

void GlooLink::interrupt() {
  const std::lock_guard lock(impl_->mutex);
  if (impl_->interrupted.exchange(true)) return;
  for (UnboundBuffer* buffer : impl_->waiting) {
    buffer->abortWaitSend();
    buffer->abortWaitRecv();
  }
  impl_->context->closeConnections();
}

}  // namespace tutti::comm
