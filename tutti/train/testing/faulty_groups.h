// Groups that make mistakes on purpose, for tests that show that such mistakes are found.
#pragma once

#include <deque>
#include <functional>
#include <mutex>

#include "tutti/comm/group.h"
#include "tutti/train/testing/layouts.h"

namespace tutti::train::testing {

struct Mistake {
  enum What {
    none,
    skip,   // the call is left out
    twice,  // done again on its own result, where it is in place
    halve,  // what comes out is halved, a mean instead of a sum of two: f32, or f64 sent as words
  };
  comm::CallKind kind = comm::CallKind::all_reduce;  // in calls of this kind
  What what = none;
  int64_t elements = 0;  // halve: only the first so many of each rank's; 0: all
};

class FaultyGroups {
 public:
  // Puts a group that makes `mistake` in the place of `pick`, on every rank; the others' calls go
  // through it unchanged. This object must outlive the training.
  using Pick = std::function<comm::Group*&(parallel::Ranks& ranks)>;
  Sabotage make(Pick pick, const Mistake& mistake);

 private:
  class Faulty;
  std::mutex mutex_;
  std::deque<std::unique_ptr<comm::Group>> groups_;
};

}  // namespace tutti::train::testing
