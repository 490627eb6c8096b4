#include "tutti/spec/schedule/step_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tutti/spec/mesh/zero_layers.h"
#include "tutti/spec/schedule/action_operations.h"
#include "tutti/spec/testing/recipes.h"

namespace tutti::spec {
namespace {

constexpr int64_t kBucket = 1024;  // elements: layers have several

Recipe small(const std::vector<std::string>& overrides) {
  return parse(
      "model: {layers: 4, hidden: 32, heads: 4, vocabulary: 128, context: 16}\n"
      "batch: {global: 24, micro: 1, sequence: 16}\n",
      overrides);
}

struct Rank {
  Recipe recipe;
  Coordinates at;
  ParamLayout layout;
  std::vector<Action> list;
};

Rank rank_of_stage(const Recipe& recipe, int64_t stage) {
  Rank out{recipe, {.pp = stage}, {}, {}};
  out.layout = param_layout(param_table(recipe.model, recipe.lora, recipe.parallel.tp),
                            recipe.parallel, out.at);
  out.list = step_list(recipe, tutti_profile_on(recipe), out.layout, out.at, kBucket);
  return out;
}

const std::vector<std::vector<std::string>>& layouts() {
  static const std::vector<std::vector<std::string>> all = {
      {},
      {"parallel.dp=2"},
      {"parallel.dp=3", "parallel.zero=1"},
      {"parallel.dp=2", "parallel.zero=2"},
      {"parallel.dp=2", "parallel.zero=3"},
      {"parallel.dp=2", "parallel.zero=3", "model.tied_embeddings=false"},
      {"parallel.pp=2", "parallel.vpp=2"},
      {"parallel.pp=2", "parallel.dp=2", "parallel.zero=3"},
      {"parallel.pp=4", "parallel.schedule=zero-bubble", "parallel.dp=2", "parallel.zero=2"},
      {"parallel.pp=2", "parallel.schedule=gpipe", "parallel.dp=2", "parallel.zero=1"}};
  return all;
}

std::string text_of(const std::vector<std::string>& overrides) {
  std::string out;
  for (const std::string& one : overrides) out += one + " ";
  return out;
}

// Every layout, with more overrides.
std::vector<std::vector<std::string>> layouts_with(const std::vector<std::string>& more) {
  std::vector<std::vector<std::string>> out = layouts();
  for (auto& overrides : out) overrides.insert(overrides.end(), more.begin(), more.end());
  return out;
}

// Calls check with every rank of every layout.
template <typename Check>
void for_each_rank(const Check& check, const std::vector<std::string>& more = {}) {
  for (const auto& overrides : layouts_with(more)) {
    const Recipe recipe = small(overrides);
    for (int64_t stage = 0; stage < recipe.parallel.pp; ++stage) {
      SCOPED_TRACE(text_of(overrides) + "stage " + std::to_string(stage));
      check(rank_of_stage(recipe, stage));
    }
  }
}

bool is_pass(ActionKind kind) {
  return kind == ActionKind::forward || kind == ActionKind::backward ||
         kind == ActionKind::weight_gradient;
}

// Each pass over a chunk goes once over its layers, and passes come in the order of pass_order.
TEST(StepList, SplitsPassesIntoLayers) {
  for_each_rank([](const Rank& rank) {
    const Mesh& mesh = rank.recipe.parallel;
    using Pass = std::tuple<ActionKind, int64_t, int64_t>;
    std::map<Pass, std::vector<int64_t>> layers;
    std::vector<Pass> begun;
    for (const Action& action : rank.list) {
      if (!is_pass(action.kind)) continue;
      const Pass pass = {action.kind, action.micro, action.chunk};
      if (layers[pass].empty()) begun.push_back(pass);
      layers[pass].push_back(action.part);
    }
    std::vector<Pass> expected;
    const int64_t micro_batches = make_schedule(rank.recipe).micro_batches;
    const bool apart = peak_delayed(mesh, micro_batches, rank.at.pp) > 0;
    for (const Action& pass : pass_order(mesh, micro_batches, rank.at.pp)) {
      expected.emplace_back(pass.kind, pass.micro, pass.chunk);
      std::vector<int64_t> of =
          forward_layers(mesh, rank.recipe.model.layers, pass.chunk * mesh.pp + rank.at.pp);
      if (pass.kind != ActionKind::forward) std::reverse(of.begin(), of.end());
      if (pass.kind == ActionKind::backward) std::erase(of, kEmbeddingLayer);
      // With shards of gradients the last stage's head comes early, in a pass that runs apart.
      std::vector<int64_t> found = layers[expected.back()];
      if (apart && by_layer(mesh) && pass.kind == ActionKind::weight_gradient) {
        EXPECT_EQ(std::set(found.begin(), found.end()), std::set(of.begin(), of.end()));
      } else {
        EXPECT_EQ(found, of) << action_name(pass.kind) << " " << pass.micro;
      }
    }
    if (!(apart && by_layer(mesh))) {
      EXPECT_EQ(begun, expected);
    }
  });
}

// With ZeRO 3 a layer's weights are in its buffer from when they are gathered until its pass.
TEST(StepList, GathersEachLayerBeforeItsPasses) {
  for_each_rank([](const Rank& rank) {
    const Mesh& mesh = rank.recipe.parallel;
    if (mesh.zero != 3) return;
    const std::vector<ZeroLayer> layers = zero_layers(rank.layout, mesh);
    const auto layer_of = [&](int64_t number) {
      return std::find_if(layers.begin(), layers.end(),
                          [&](const ZeroLayer& one) { return one.is(number); });
    };
    std::map<std::pair<std::string, int64_t>, int64_t> buffers;  // which layer each holds
    int64_t gathers = 0;
    int64_t early = 0;  // begun while another layer computes
    for (size_t i = 0; i < rank.list.size(); ++i) {
      const Action& action = rank.list[i];
      const bool gathers_layer =
          action.kind == ActionKind::gather || action.kind == ActionKind::gather_backward;
      if (gathers_layer) {
        const auto layer = layer_of(action.part);
        buffers[{layer->slot, layer->repeat}] = layer->layer;
        ++gathers;
        early += rank.list[i + 1].part != action.part ? 1 : 0;
      }
      const bool reads = action.kind == ActionKind::forward ||
                         (action.kind == ActionKind::backward && action.part >= 0);
      if (!reads) continue;
      const auto layer = layer_of(action.part);
      const std::pair<std::string, int64_t> buffer = {layer->slot, layer->repeat};
      EXPECT_EQ(buffers[buffer], layer->layer)
          << action_name(action.kind) << " " << part_text(action, mesh);
    }
    EXPECT_GT(early, gathers / 2);
  });
}

// Every bucket is reduced once, in the last micro-batch, after the gradients in it; every layer in
// every micro-batch right after its own.
TEST(StepList, ReducesWhatIsFinal) {
  for_each_rank([](const Rank& rank) {
    const Mesh& mesh = rank.recipe.parallel;
    const bool layers = by_layer(mesh);
    std::map<int64_t, int64_t> reduced;
    std::set<int64_t> final_layers;
    const int64_t last = make_schedule(rank.recipe).micro_batches - 1;
    const std::vector<Bucket> all = buckets(rank.layout, mesh, kBucket);
    for (size_t i = 0; i < rank.list.size(); ++i) {
      const Action& action = rank.list[i];
      if (action.kind == ActionKind::weight_gradient && action.micro == last) {
        final_layers.insert(action.part);
      }
      if (action.kind != ActionKind::reduce || action.part == kTiedTable) continue;
      ++reduced[action.part];
      if (layers) {
        EXPECT_EQ(rank.list[i - 1].kind, ActionKind::weight_gradient);
        EXPECT_EQ(rank.list[i - 1].part, action.part);
        continue;
      }
      const Bucket& bucket = all[static_cast<size_t>(action.part)];
      for (const PlacedParam& placed : rank.layout.params) {
        const int64_t end = placed.element_offset + placed.shard.count();
        if (end <= bucket.first || placed.element_offset >= bucket.first + bucket.count) continue;
        const int64_t layer = layer_number(placed.name);
        // The last stage's copy of a tied table is the head's.
        const bool copy = layer == kEmbeddingLayer && rank.at.pp > 0;
        EXPECT_EQ(final_layers.count(copy ? kHeadLayer : layer), 1U) << placed.name;
      }
    }
    if (replicas(mesh) == 1) {
      EXPECT_TRUE(reduced.empty());
    } else if (!layers) {
      EXPECT_EQ(reduced.size(), all.size());
    }
    for (const auto& [part, times] : reduced) EXPECT_EQ(times, layers ? last + 1 : 1) << part;
  });
}

// Slices are updated from the last one to the first; what is divided is gathered once after it.
TEST(StepList, EndsWithNormAndUpdates) {
  for_each_rank([](const Rank& rank) {
    const Mesh& mesh = rank.recipe.parallel;
    const auto norm = std::find_if(rank.list.begin(), rank.list.end(), [](const Action& action) {
      return action.kind == ActionKind::norm;
    });
    ASSERT_NE(norm, rank.list.end());
    auto next = static_cast<int64_t>(owned_slices(rank.layout, mesh, rank.at, kBucket).size());
    std::set<int64_t> gathered;
    for (auto action = norm + 1; action != rank.list.end(); ++action) {
      if (action->kind == ActionKind::update) {
        EXPECT_EQ(action->part, --next);
      } else {
        EXPECT_EQ(action->kind, ActionKind::gather);
        EXPECT_TRUE(gathered.insert(action->part).second);
      }
    }
    EXPECT_EQ(next, 0);
    const bool gathers = replicas(mesh) > 1 && (mesh.zero == 1 || mesh.zero == 2);
    EXPECT_EQ(gathered.size(), gathers ? weight_buckets(rank.layout, mesh, kBucket).size() : 0U);
  });
}

// Trained weights of products in 8 bits whose codes stay: once, right before the forward pass that
// reads them first, also in an evaluation.
TEST(StepList, QuantizesEachLayerOnceBeforeItsFirstForwardPass) {
  const auto count = [](const std::vector<Action>& list) {
    return std::count_if(list.begin(), list.end(),
                         [](const Action& action) { return action.kind == ActionKind::quantize; });
  };
  for (const auto& overrides :
       layouts_with({"device=cuda", "precision={compute: fp8, wide_last: 1, head: true}"})) {
    const Recipe recipe = small(overrides);
    SCOPED_TRACE(text_of(overrides));
    std::vector<int64_t> quantized;
    for (int64_t stage = 0; stage < recipe.parallel.pp; ++stage) {
      const Rank rank = rank_of_stage(recipe, stage);
      std::set<int64_t> passed;
      for (size_t i = 0; i < rank.list.size(); ++i) {
        const Action& action = rank.list[i];
        if (action.kind == ActionKind::forward) passed.insert(action.part);
        if (action.kind != ActionKind::quantize) continue;
        quantized.push_back(action.part);
        EXPECT_EQ(passed.count(action.part), 0U);
        Action pass = action;
        pass.kind = ActionKind::forward;
        EXPECT_EQ(rank.list.at(i + 1), pass);
      }
      const std::vector<Action> evaluation =
          evaluation_list(recipe, tutti_profile_on(recipe), rank.layout, rank.at);
      EXPECT_EQ(count(evaluation), count(rank.list));
    }
    std::sort(quantized.begin(), quantized.end());
    // The last block is wide; ZeRO 3 quantizes for each product.
    const std::vector<int64_t> all = {kHeadLayer, 0, 1, 2};
    EXPECT_EQ(quantized, recipe.parallel.zero == 3 ? std::vector<int64_t>{} : all);
  }
  const Recipe frozen = small({"device=cuda", "precision=fp8", "lora={rank: 4}"});
  EXPECT_TRUE(tutti_profile_on(frozen).quantizes_weights_once);
  EXPECT_EQ(count(rank_of_stage(frozen, 0).list), 0);
}

// The list's operations add up to those of whole chunks.
void expect_work_of_the_program(const Rank& rank) {
  const Profile profile = tutti_profile_on(rank.recipe);
  const Program program = make_program(rank.recipe, profile);
  const Schedule schedule = make_schedule(rank.recipe);
  const ParamLayout layout =
      param_layout(param_table(rank.recipe.model, {}, profile.vocabulary_multiple),
                   rank.recipe.parallel, rank.at);
  const ActionOperations operations(rank.recipe, profile, program, layout, rank.at);
  Work listed;
  for (const Action& action : step_list(rank.recipe, profile, layout, rank.at)) {
    operations.visit(action, [&](const Op& op, bool first) {
      listed.flops += op.flops;
      listed.model_flops += op.model_flops;
      (op.collective ? listed.collective_bytes : listed.bytes) += first ? op.first_bytes : op.bytes;
    });
  }
  const Work whole = step_work(program, schedule, rank.at.pp);
  EXPECT_NEAR(listed.flops, whole.flops, 1e-6 * whole.flops);
  EXPECT_NEAR(listed.model_flops, whole.model_flops, 1e-6 * whole.model_flops);
  EXPECT_NEAR(listed.bytes, whole.bytes, 1e-3 * whole.bytes);
  EXPECT_NEAR(listed.collective_bytes, whole.collective_bytes, 0.01 * whole.collective_bytes);
}

TEST(StepList, DoesTheWorkOfTheProgram) {
  for_each_rank(expect_work_of_the_program);
  for_each_rank(expect_work_of_the_program, {"device=cuda", "precision=fp8"});
}

TEST(StepList, NamesPartsForPeople) {
  const Mesh plain{.dp = 2};
  const Mesh sharded{.dp = 2, .zero = 3};
  EXPECT_EQ(part_text({ActionKind::forward, 0, 0, 7}, plain), "layer 7");
  EXPECT_EQ(part_text({ActionKind::forward, 0, 0, kHeadLayer}, plain), "head");
  EXPECT_EQ(part_text({ActionKind::reduce, 0, 0, 2}, plain), "bucket 2");
  EXPECT_EQ(part_text({ActionKind::reduce, 0, 0, 2}, sharded), "layer 2");
  EXPECT_EQ(part_text({ActionKind::update, 0, 0, 1}, sharded), "slice 1");
  EXPECT_EQ(part_text({ActionKind::norm}, plain), "");
}

}  // namespace
}  // namespace tutti::spec
