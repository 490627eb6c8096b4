// Ten steps in one layout, saved by all its ranks; ten more in others, larger and smaller, whose
// losses are those of the run that was not interrupted.
#include <gtest/gtest.h>

#include <vector>

#include "tests/layouts/models.h"
#include "tests/layouts/not_yet.h"
#include "tutti/base/testing/memory_file.h"

namespace tutti::train {
namespace {

using namespace testing;
using spec::Mesh;

constexpr int64_t kSaved = 10;

TEST(Reshard, ARunGoesOnInAnyOtherLayout) {
  // All with sequences of 16 tokens, so that every layout has the same samples.
  const std::vector<Mesh> meshes = {
      {.tp = 2},
      {.dp = 2, .cp = 2, .zero = 3},
      {.pp = 2, .cp = 2},
      {.dp = 2, .tp = 2, .pp = 2, .zero = 1},
      {.dp = 3, .tp = 2, .zero = 2},
      {.tp = 4, .pp = 2},
  };
  for (const Kind kind : {Kind::gpt, Kind::llama, Kind::experts}) {
    for (size_t i = 0; i < meshes.size(); ++i) {
      const Layout from = {kind, meshes[i]};
      if (!is_to_be_tried(recipe_of(from), text_of(from))) continue;
      MemoryFileSystem files;
      const Prepare routing = same_routing(from);
      const Tensors saved = train_and_save(recipe_of(from), kSaved, files, routing);
      for (const size_t other : {i + 1, i + 3}) {
        const Layout to = {kind, meshes[other % meshes.size()]};
        if (!is_to_be_tried(recipe_of(to), text_of(to))) continue;
        SCOPED_TRACE(text_of(from) + " to " + text_of(to));
        load_and_go_on(recipe_of(to), kSaved, files, saved, alone(to).losses, routing);
      }
    }
  }
}

// The same along dp and ZeRO alone.
TEST(Reshard, StagesOfZeroAreExchanged) {
  const std::vector<Mesh> meshes = {{.dp = 2, .zero = 3}, {.dp = 6, .zero = 2}, {},
                                    {.dp = 3, .zero = 3}, {.dp = 4, .zero = 1}, {.dp = 2}};
  for (const Kind kind : {Kind::gpt, Kind::llama}) {
    for (size_t i = 0; i < meshes.size(); ++i) {
      const Layout from = {kind, meshes[i]};
      MemoryFileSystem files;
      const Tensors saved = train_and_save(recipe_of(from), kSaved, files);
      for (const size_t other : {i + 1, i + 2}) {
        const Layout to = {kind, meshes[other % meshes.size()]};
        SCOPED_TRACE(text_of(from) + " to " + text_of(to));
        load_and_go_on(recipe_of(to), kSaved, files, saved, alone(to).losses);
      }
    }
  }
}

}  // namespace
}  // namespace tutti::train
