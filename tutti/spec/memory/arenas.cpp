#include "tutti/spec/memory/arenas.h"

#include "tutti/base/check.h"
#include "tutti/spec/recipe/distill.h"

namespace tutti::spec {

const ArenaKind& arena_kind(std::string_view name) {
  const std::string_view teacher = kTeacherPrefix;
  if (name.starts_with(teacher)) name.remove_prefix(teacher.size());
  for (const ArenaKind& kind : kArenas) {
    if (kind.name == name) return kind;
  }
  check_failed(__FILE__, __LINE__, "arena is known",
               fmt::format("no arena '{}' in spec/memory/arenas.h", name));
}

}  // namespace tutti::spec
