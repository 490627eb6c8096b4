// The operations of a step of the trainer, by the actions of its list (step_list.h).
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "tutti/spec/mesh/zero_layers.h"
#include "tutti/spec/program/program.h"
#include "tutti/spec/schedule/step_list.h"

namespace tutti::spec {

class ActionOperations {
 public:
  // `layout`: of rank `at`. All outlive it.
  ActionOperations(const Recipe& recipe, const Profile& profile, const Program& program,
                   const ParamLayout& layout, const Coordinates& at,
                   int64_t bucket_elements = kBucketElements);

  // Calls visit(op, first) for every operation of `action` in the order in which it does them;
  // `first`: in the first micro-batch of a step (Op::first_bytes hold). Copies between host and
  // device, evaluations and saves have none here.
  void visit(const Action& action, const std::function<void(const Op&, bool first)>& visit) const;

 private:
  using Lists = std::vector<const std::vector<Op>*>;
  struct Chunk {
    std::vector<size_t> blocks;  // kinds, by block
    std::vector<size_t> after;   // of the head, or of what is done before the output is sent
    bool first = false;
    bool last = false;
  };
  Lists pass(const Action& action) const;
  void add_pass(const Action& action, size_t kind, Lists& out) const;
  std::vector<Op> collectives(const Action& action) const;

  const Recipe& recipe_;
  const Profile& profile_;
  const Program& program_;
  const ParamLayout& layout_;
  Coordinates at_;
  DType compute_;
  bool by_layer_;
  bool apart_;
  std::vector<Chunk> chunks_;
  std::vector<ShardSlice> slices_;
  std::vector<Bucket> buckets_;
  std::vector<ZeroLayer> zero_layers_;
};

}  // namespace tutti::spec
