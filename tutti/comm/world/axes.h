// Which ranks of a mesh form a group: those that differ in the named axes only.
//
// Expert parallel ranks are taken from dp x cp: with d = dp_index * cp + cp_index, the index among
// them is d % ep, and ranks of equal d % ep hold the same experts. So ep may be combined with tp
// and pp, but not with dp or cp, of which it is a part.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "tutti/spec/mesh/mesh.h"

namespace tutti::comm {

class Axes {
 public:
  Axes(spec::Axis axis) : Axes({axis}) {}  // NOLINT: one axis is a set
  Axes(std::initializer_list<spec::Axis> axes) {
    for (const spec::Axis axis : axes) bits_ |= 1U << static_cast<unsigned>(axis);
  }
  bool has(spec::Axis axis) const { return (bits_ >> static_cast<unsigned>(axis) & 1U) != 0; }
  bool operator==(const Axes&) const = default;
  std::string name() const;  // "dp", "dp x cp"

 private:
  unsigned bits_ = 0;
};

// Ascending, `rank` among them.
std::vector<int64_t> members(const spec::Mesh& mesh, int64_t rank, Axes axes);

// The ranks that hold the same experts and the same shard of them: dp x cp / ep of them
// (spec::replicas with expert).
std::vector<int64_t> expert_replicas(const spec::Mesh& mesh, int64_t rank);

// The `count` tensor parallel ranks, one after another, of which this is one: those that hold the
// same key/value heads (spec::tensor_copies). count divides tp.
std::vector<int64_t> tensor_copies(const spec::Mesh& mesh, int64_t rank, int64_t count);

// Of the ranks along pp the first and the last one.
std::vector<int64_t> pipeline_ends(const spec::Mesh& mesh, int64_t rank);

}  // namespace tutti::comm
