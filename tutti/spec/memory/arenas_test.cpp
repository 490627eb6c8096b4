#include "tutti/spec/memory/arenas.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

#include "tutti/spec/memory/memory.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

// The list and the maps agree: building a map with an arena of another name aborts.
TEST(Arenas, EveryKindIsInSomeMap) {
  std::set<std::string> found;
  const auto add = [&](const MemoryMap& map) {
    for (const ArenaPlan& arena : map.arenas) found.insert(arena.name);
  };
  add(memory_map(recipe_of("gpt2-124m", {"offload.optimizer=true"})));
  add(memory_map(recipe_of("gpt2-124m", {"offload.activations=all"})));
  add(memory_map(recipe_of("gpt2-124m", {"parallel={dp: 8, zero: 3}", "batch.global=8"})));
  add(memory_map(recipe_of("moe-tiny")));
  add(memory_map(recipe_of("llama3.1-8b", {"precision=fp8", "device=cuda"})));
  add(memory_map(recipe_of("llama3.1-8b", {"precision=fp8", "lora={rank: 8, alpha: 16}"}),
                 find_profile("nemo-lora")));
  for (const ArenaKind& kind : kArenas) {
    EXPECT_TRUE(found.count(std::string(kind.name))) << kind.name;
    EXPECT_STRNE(kind.what, "") << kind.name;
  }
}

TEST(Arenas, ArenasOfATeacherHaveTheKindOfTheirName) {
  EXPECT_EQ(&arena_kind("teacher.loss"), &arena_kind("loss"));
  EXPECT_DEATH(arena_kind("leftover"), "no arena 'leftover'");
}

}  // namespace
}  // namespace tutti::spec
