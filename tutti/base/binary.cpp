#include "tutti/base/binary.h"

#include <fmt/format.h>
#include <link.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/hash.h"
#include "tutti/base/text.h"

namespace tutti {
namespace {

constexpr size_t kShownBytes = 4;

// The build id in a segment of notes, as the ELF format lays them out; "" when there is none.
std::string build_id(std::string_view notes) {
  const auto padded = [](size_t size) { return (size + 3) / 4 * 4; };
  while (notes.size() >= sizeof(ElfW(Nhdr))) {
    ElfW(Nhdr) head;
    std::memcpy(&head, notes.data(), sizeof head);
    const size_t name = sizeof head;
    const size_t content = name + padded(head.n_namesz);
    const size_t end = content + padded(head.n_descsz);
    if (end > notes.size()) break;
    if (head.n_type == NT_GNU_BUILD_ID && head.n_descsz >= kShownBytes &&
        notes.substr(name, head.n_namesz) == std::string_view("GNU", 4)) {
      std::string id;
      for (const char byte : notes.substr(content, kShownBytes)) {
        id += fmt::format("{:02x}", static_cast<unsigned char>(byte));
      }
      return id;
    }
    notes.remove_prefix(end);
  }
  return {};
}

int add_library(dl_phdr_info* info, size_t /*size*/, void* out) {
  const std::string name(base_name(info->dlpi_name));
  // The executable has no name here; the kernel's page of functions is not a file.
  if (info->dlpi_name[0] == '\0' || starts_with(name, "linux-vdso")) return 0;
  std::string id;
  for (int i = 0; i < info->dlpi_phnum && id.empty(); ++i) {
    const ElfW(Phdr)& segment = info->dlpi_phdr[i];
    if (segment.p_type != PT_NOTE) continue;
    id = build_id({reinterpret_cast<const char*>(info->dlpi_addr + segment.p_vaddr),  // NOLINT
                   segment.p_memsz});
  }
  static_cast<std::vector<std::string>*>(out)->push_back(name + " " + (id.empty() ? "?" : id));
  return 0;
}

std::string libraries_now() {
  std::vector<std::string> libraries;
  dl_iterate_phdr(add_library, &libraries);
  std::sort(libraries.begin(), libraries.end());
  return join(libraries, ", ");
}

// Filled before main: later a library may open plug-ins of its own, such as hwloc's for GPUs, and
// when it does so depends on what ran before.
const std::string kLibrariesAtStart = libraries_now();  // NOLINT(cert-err58-cpp)

std::string hash_of_executable() {
  try {
    return hash_hex(hash_text(posix_file_system().map("/proc/self/exe")->bytes()));
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

Binary describe_binary() { return {hash_of_executable(), kLibrariesAtStart}; }

}  // namespace tutti
