// The keys of a recipe as data: for documentation, and for editors that check and complete.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "tutti/base/json.h"

namespace tutti::spec {

enum class KeyKind {
  count,
  count_or_all,
  seed,
  real,
  seconds,
  flag,
  text,
  names,   // a list of any names, or of `names`
  counts,  // a list
  choice,
  blend,
  model,
  section,
  choice_or_section,
};

struct RecipeKey {
  std::string path;  // "batch.global"
  KeyKind kind = KeyKind::text;
  std::string usual;  // the default, for people; empty for sections
  std::string help;
  int64_t least = 0;  // of counts
  int64_t most = INT64_MAX;
  std::vector<std::string> names;  // what a choice or a list accepts
};

// Every key in the order of a written recipe, a section before its keys. Those of a model are below
// "model"; distill.model has the same.
std::vector<RecipeKey> recipe_key_table();

// What `key` accepts, for people: "1 or more", "none, selective, full".
std::string accepted_text(const RecipeKey& key);

// A table in Markdown for each section: docs/recipe.md.
std::string recipe_keys_markdown();

// JSON Schema (draft 2020-12) of a recipe. Values that need more than their own key to be judged
// are left to `tutti train --dry-run`.
Json recipe_schema();

}  // namespace tutti::spec
