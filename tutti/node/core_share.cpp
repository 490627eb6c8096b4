#include "tutti/node/core_share.h"

#include <fmt/format.h>
#include <hwloc.h>

#include <algorithm>
#include <climits>
#include <memory>

#include "tutti/base/check.h"
#include "tutti/base/error.h"

namespace tutti::node {
namespace {

struct FreeBitmap {
  void operator()(hwloc_bitmap_t bitmap) const { hwloc_bitmap_free(bitmap); }
};
using Bitmap = std::unique_ptr<std::remove_pointer_t<hwloc_bitmap_t>, FreeBitmap>;

Bitmap make_bitmap(hwloc_bitmap_t bitmap) {
  TUTTI_CHECK(bitmap != nullptr, "no memory for a set of cores");
  return Bitmap(bitmap);
}

class CoreTopology {
 public:
  CoreTopology() {
    if (hwloc_topology_init(&topology_) != 0 || hwloc_topology_load(topology_) != 0) {
      fail(ErrorKind::unsupported, "hwloc cannot determine the cores of this machine");
    }
  }
  ~CoreTopology() { hwloc_topology_destroy(topology_); }
  CoreTopology(const CoreTopology&) = delete;
  CoreTopology& operator=(const CoreTopology&) = delete;

  hwloc_topology_t get() const { return topology_; }

  // Of this process, as it is now.
  Bitmap allowed_here() const {
    Bitmap set = make_bitmap(hwloc_bitmap_alloc());
    if (hwloc_get_cpubind(topology_, set.get(), HWLOC_CPUBIND_THREAD) != 0) {
      hwloc_bitmap_copy(set.get(), hwloc_topology_get_allowed_cpuset(topology_));
    }
    hwloc_bitmap_and(set.get(), set.get(), hwloc_topology_get_allowed_cpuset(topology_));
    return set;
  }

 private:
  hwloc_topology_t topology_ = nullptr;
};

std::vector<int> members(hwloc_const_bitmap_t set) {
  std::vector<int> out;
  for (int core = hwloc_bitmap_first(set); core >= 0; core = hwloc_bitmap_next(set, core)) {
    out.push_back(core);
  }
  return out;
}

}  // namespace

CoreShare share_cores(int64_t local_rank, int64_t local_size) {
  TUTTI_CHECK(local_rank >= 0 && local_rank < local_size, "rank {} of {} on this host", local_rank,
              local_size);
  const CoreTopology topology;
  const Bitmap allowed = topology.allowed_here();
  const std::vector<int> all = members(allowed.get());
  TUTTI_CHECK(!all.empty(), "no core for this process");
  const auto count = static_cast<int64_t>(all.size());
  CoreShare share;
  if (local_size > count) {
    const int64_t mine = local_rank * count / local_size;
    share.cores = {all[static_cast<size_t>(mine)]};
    share.sharing = 0;
    for (int64_t other = 0; other < local_size; ++other) {
      share.sharing += other * count / local_size == mine ? 1 : 0;
    }
    return share;
  }
  if (hwloc_topology_restrict(topology.get(), allowed.get(), 0) != 0) {
    fail(ErrorKind::unsupported, "hwloc cannot divide the cores {}", cores_text(all));
  }
  hwloc_obj_t root = hwloc_get_root_obj(topology.get());
  std::vector<hwloc_bitmap_t> sets(static_cast<size_t>(local_size), nullptr);
  hwloc_distrib(topology.get(), &root, 1, sets.data(), static_cast<unsigned>(local_size), INT_MAX,
                0);
  size_t least = all.size();
  std::vector<Bitmap> owned;
  for (hwloc_bitmap_t set : sets) {
    owned.push_back(make_bitmap(set));
    least = std::min(least, members(set).size());
  }
  // Equally many: a step takes as long as its slowest rank.
  share.cores = members(sets[static_cast<size_t>(local_rank)]);
  share.cores.resize(least);
  return share;
}

bool may_use_all_cores() {
  const CoreTopology topology;
  const Bitmap allowed = topology.allowed_here();
  return hwloc_bitmap_isequal(allowed.get(), hwloc_topology_get_allowed_cpuset(topology.get())) !=
         0;
}

void bind_to(const CoreShare& share) {
  const CoreTopology topology;
  const Bitmap set = make_bitmap(hwloc_bitmap_alloc());
  for (const int core : share.cores) hwloc_bitmap_set(set.get(), static_cast<unsigned>(core));
  if (hwloc_set_cpubind(topology.get(), set.get(), HWLOC_CPUBIND_THREAD) != 0) {
    fail(ErrorKind::unsupported, "this rank cannot be bound to the cores {}",
         cores_text(share.cores));
  }
}

std::string cores_text(const std::vector<int>& cores) {
  std::string text;
  for (size_t i = 0; i < cores.size();) {
    size_t last = i;
    while (last + 1 < cores.size() && cores[last + 1] == cores[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", cores[i]);
    if (last > i) text += fmt::format("-{}", cores[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace tutti::node
