// The models that layouts are tried with, and how they are compared with one rank.
//
// Sizes: width 24, 4 to 6 layers, vocabulary 101 (so that vocabulary and stages divide unevenly),
// about 40 thousand parameters; 24 sequences a step, of 16 tokens, or of 7 where nothing divides
// them.
#pragma once

#include <string>

#include "tutti/spec/recipe/recipe.h"
#include "tutti/train/testing/layouts.h"

namespace tutti::train::testing {

enum class Kind {
  gpt,      // tied embeddings, learned positions, biases, layer norms
  llama,    // grouped queries, rotary positions, rms norms, a head of its own
  experts,  // the same with a mixture of experts
  qwen,     // norms of queries and keys, biases, partial rotation, a window
  gemma,    // norms on both sides, capped scores and logits, two rotations
  granite,  // multipliers, a layer without rotation
};
const char* name_of(Kind kind);

struct Layout {
  Kind kind = Kind::gpt;
  spec::Mesh mesh;
  int64_t micro = 1;  // sequences of a micro-batch
  double dropout = 0;
  bool recompute = false;
  bool adapters = false;
};
std::string text_of(const Layout& layout);

// Of the layout; sequences of 16 tokens where they are divided, else of 7.
spec::Recipe recipe_of(const Layout& layout);

// Twenty steps on one rank in micro-batches of two, of the same samples: made once for all layouts
// that need it.
const Training& alone(const Layout& layout);

// Lets routers choose as that rank's did.
Prepare same_routing(const Layout& layout);

// Steps on its ranks, with the routing of that rank; `prepare` as in train_on.
Training train_again(const Layout& layout, int64_t steps, const Sabotage& sabotage = {},
                     const Prepare& prepare = {});

// Twenty steps on its ranks, compared with those (expect_same).
void expect_same_as_alone(const Layout& layout);

}  // namespace tutti::train::testing
