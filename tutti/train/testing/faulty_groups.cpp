#include "tutti/train/testing/faulty_groups.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

namespace tutti::train::testing {

class FaultyGroups::Faulty : public comm::Group {
 public:
  Faulty(comm::Group& inner, const Mistake& mistake)
      : Group(inner.info()), inner_(inner), mistake_(mistake) {}
  std::vector<comm::RankActivity> activity() const override { return inner_.activity(); }
  void fail_with(const std::string& message) override { inner_.fail_with(message); }

 protected:
  comm::Ticket enqueue(engine::Stream& stream, const comm::Call& call) override {
    if (call.shape.kind != mistake_.kind || mistake_.what == Mistake::none) {
      return forward(stream, call);
    }
    if (mistake_.what == Mistake::skip) return {};
    comm::Ticket ticket = forward(stream, call);
    ticket.wait(stream);
    if (mistake_.what == Mistake::twice) return forward(stream, call);
    const int64_t parts = call.shape.kind == comm::CallKind::all_gather ? size() : 1;
    for (int64_t part = 0; part < parts; ++part) halve(call, part * call.shape.count);
    return ticket;
  }
  bool done(int32_t, uint64_t) const override { return true; }
  void wait(engine::Stream&, int32_t, uint64_t) override {}

 private:
  void halve(const comm::Call& call, int64_t begin) const {
    const int64_t end = begin + (mistake_.elements > 0 ? mistake_.elements : call.shape.count);
    for (int64_t i = begin; i < end; ++i) {
      if (call.shape.dtype == DType::i64) {
        static_cast<double*>(call.receive)[i] *= 0.5;
      } else {
        static_cast<float*>(call.receive)[i] *= 0.5F;
      }
    }
  }

  comm::Ticket forward(engine::Stream& stream, const comm::Call& call) {
    const comm::CallShape& shape = call.shape;
    const auto send = [&](int64_t times) {
      return engine::vector(const_cast<void*>(call.send), shape.dtype, times * shape.count);
    };
    const auto receive = [&](int64_t times) {
      return engine::vector(call.receive, shape.dtype, times * shape.count);
    };
    const auto sum = [](std::span<const int64_t> counts) {
      return std::accumulate(counts.begin(), counts.end(), int64_t{0});
    };
    switch (shape.kind) {
      case comm::CallKind::all_reduce:
        return inner_.all_reduce(stream, send(1), receive(1), shape.reduce);
      case comm::CallKind::reduce_scatter:
        return inner_.reduce_scatter(stream, send(size()), receive(1), shape.reduce);
      case comm::CallKind::all_gather: return inner_.all_gather(stream, send(1), receive(size()));
      case comm::CallKind::all_to_all:
        return inner_.all_to_all(
            stream,
            engine::vector(const_cast<void*>(call.send), shape.dtype, sum(call.send_counts)),
            engine::vector(call.receive, shape.dtype, sum(call.receive_counts)), call.send_counts,
            call.receive_counts);
      case comm::CallKind::broadcast: return inner_.broadcast(stream, receive(1), shape.peer);
      case comm::CallKind::barrier: return inner_.barrier(stream);
      case comm::CallKind::send: return inner_.send(stream, send(1), shape.peer);
      case comm::CallKind::receive: return inner_.receive(stream, receive(1), shape.peer);
      case comm::CallKind::none: break;
    }
    TUTTI_CHECK(false, "a call of no kind");
    return {};
  }

  comm::Group& inner_;
  Mistake mistake_;
};

Sabotage FaultyGroups::make(Pick pick, const Mistake& mistake) {
  const auto replace = [this, pick = std::move(pick), mistake](parallel::Ranks& ranks) {
    comm::Group*& group = pick(ranks);
    if (group == nullptr) return;
    const std::lock_guard lock(mutex_);
    groups_.push_back(std::make_unique<Faulty>(*group, mistake));
    group = groups_.back().get();
  };
  return {replace, {}};
}

}  // namespace tutti::train::testing
