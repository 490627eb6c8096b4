#include "tutti/cli/train/memory_check.h"

#include <algorithm>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/program/common.h"
#include "tutti/engine/backend.h"
#include "tutti/spec/memory/fit.h"
#include "tutti/train/step/device_memory.h"

namespace tutti::cli {
namespace {

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string uses_text(const spec::Recipe& recipe, int64_t device_bytes) {
  std::vector<std::pair<std::string, std::string>> rows;
  for (const spec::MemoryUse& use : spec::memory_uses(recipe, device_bytes)) {
    rows.emplace_back("  " + use.name,
                      fmt::format("{:>10}  {}", bytes_text(use.bytes),
                                  use.what + (use.on_host ? ", in memory of the host" : "")));
  }
  return format_pairs(rows);
}

std::string remedy_text(const spec::Recipe& recipe, int64_t most_bytes, int64_t device_bytes) {
  spec::MemoryChange smallest;
  std::string text;
  for (const spec::MemoryChange& change :
       changes_that_fit(recipe, most_bytes, 3, &smallest, device_bytes)) {
    text += fmt::format("  {}  ({}{})\n", join(change.settings, " "), bytes_text(change.bytes),
                        change.host_bytes == 0
                            ? ""
                            : " and " + bytes_text(change.host_bytes) + " in memory of the host");
  }
  if (!text.empty()) return "any of these would fit, the fastest first:\n" + text;
  const std::string least =
      smallest.settings.empty()
          ? ""
          : fmt::format("; {} takes {}", join(smallest.settings, " "), bytes_text(smallest.bytes));
  return std::string(recipe.device == "cpu" ? "recompute" : "recompute, offload") +
         ", batch.micro and parallel.zero are not enough" + least +
         "; make model.hidden, model.layers or batch.sequence smaller, or use more ranks\n";
}

}  // namespace

int64_t device_room_bytes(const engine::Backend& backend, int device) {
  if (device == kNoDevice) return backend.devices().at(0).memory_bytes;
  return backend.free_bytes(device);
}

void check_memory(const spec::Recipe& recipe, int64_t ranks_here, int device) {
  const engine::Backend& backend = engine::find_backend(recipe.device);
  const bool shared = &backend == &engine::cpu_backend();  // by all ranks here
  std::string where = "the machine";
  int64_t room = 0;
  int64_t ranks = ranks_here;
  if (shared) {
    room = describe_machine().memory_bytes;
  } else {
    if (const std::string missing = backend.missing(); !missing.empty()) {
      fail(ErrorKind::unsupported, "device: {}: {}", recipe.device, missing);
    }
    const std::vector<engine::DeviceInfo> devices = backend.devices();
    where = devices.at(static_cast<size_t>(std::max(0, device))).name;
    room = device_room_bytes(backend, device);
    // The most that share one.
    ranks = train::ranks_per_device(ranks_here, static_cast<int64_t>(devices.size()));
  }
  const int64_t device_bytes = train::device_memory_bytes(recipe, device, ranks_here);
  const spec::MemoryMap map = spec::fullest_memory_map(recipe, device_bytes);
  const int64_t host_room = describe_machine().memory_bytes;
  if (const int64_t host = map.host_bytes() * ranks_here; host_room > 0 && host > host_room) {
    fail(ErrorKind::unsupported,
         "offload: {} keeps {} in memory of this host, which has {}; use more hosts, or "
         "offload.optimizer=true or offload.activations alone",
         spec::offload_text(recipe.offload), bytes_text(host), bytes_text(host_room));
  }
  const int64_t rank = map.total_bytes();
  if (room <= 0 || rank * ranks <= room) return;
  std::string text = fmt::format("this recipe needs {} of memory and {} has {}",
                                 bytes_text(rank * ranks), where, bytes_text(room));
  text += ranks == 1 ? ":\n" : fmt::format("; each of {} ranks:\n", ranks);
  text += uses_text(recipe, device_bytes) + remedy_text(recipe, room / ranks, device_bytes);
  text.pop_back();
  fail(ErrorKind::unsupported, "{}", text);
}

}  // namespace tutti::cli
