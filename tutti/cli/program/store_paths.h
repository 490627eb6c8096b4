// Which arguments may lead to an object store (s3://BUCKET/KEY). This list is the only one; the
// table in docs/stores.md says the same. Every other argument that does is refused before its
// command has begun: nothing has been read or uploaded then.
//
// Keys of recipes (KEY=VALUE) have a list of their own, in spec/recipe/recipe.cpp.
#pragma once

#include <CLI/CLI.hpp>
#include <array>

namespace tutti::cli {

struct StoreArgument {
  const char* command;   // "data prepare"
  const char* argument;  // "--out", or "RUN" of one without a name
};

inline constexpr std::array<StoreArgument, 15> kStoreArguments = {{
    {"data prepare", "--out"},
    {"data prepare", "--tokenizer"},
    {"data inspect", "PREFIX"},
    {"eval", "RUN"},
    {"eval", "--data"},
    {"generate", "RUN"},
    {"endpoint", "MODEL"},
    {"checkpoint list", "RUN"},
    {"checkpoint verify", "RUN"},
    {"checkpoint export", "RUN"},
    {"checkpoint merge", "RUN"},
    {"checkpoint export-adapter", "RUN"},
    {"checkpoint lineage", "RUN"},
    {"checkpoint approve", "RUN"},
    {"bench storage", "PATH"},
}};

// Of a command line that `program` has parsed. Throws usage naming command, argument, value and
// remedy.
void check_store_paths(const CLI::App& program);

}  // namespace tutti::cli
