// Named layouts over one to eight ranks: every axis alone, every pair, triples, with ZeRO stages
// and schedules. Gradients of the first step and twenty losses are those of one rank.
#include <gtest/gtest.h>

#include <cctype>
#include <mutex>
#include <string>
#include <vector>

#include "tests/layouts/models.h"
#include "tests/layouts/not_yet.h"
#include "tutti/base/file.h"
#include "tutti/catalog/catalog.h"
#include "tutti/plan/action_prices.h"
#include "tutti_test_paths.h"

namespace tutti::train {
namespace {

using namespace testing;
using spec::Mesh;
using spec::Pipeline;

std::vector<Layout> layouts() {
  std::vector<Layout> all;
  // Of a GPT and a Llama.
  for (const Kind kind : {Kind::gpt, Kind::llama}) {
    const auto add = [&](const Mesh& mesh, int64_t micro = 1) {
      all.push_back({kind, mesh, micro});
    };
    add({.dp = 2});
    add({.dp = 3}, 2);
    add({.dp = 8});
    add({.dp = 2, .zero = 1}, 4);
    add({.dp = 3, .zero = 2}, 2);
    add({.dp = 8, .zero = 2});
    add({.dp = 2, .zero = 3}, 3);
    add({.dp = 6, .zero = 3}, 2);
    add({.tp = 2});
    add({.tp = 4}, 2);
    add({.pp = 2});
    add({.pp = 3}, 2);
    add({.pp = 4});
    add({.pp = 2, .vpp = 2});
    add({.pp = 3, .pipeline = Pipeline::zero_bubble});
    add({.cp = 2});
    add({.cp = 4}, 2);
    add({.dp = 2, .tp = 2});
    add({.dp = 2, .pp = 2});
    add({.dp = 3, .cp = 2});
    add({.tp = 2, .pp = 2});
    add({.tp = 2, .cp = 2});
    add({.pp = 2, .cp = 2});
    add({.dp = 2, .tp = 2, .zero = 1});
    add({.dp = 2, .tp = 2, .zero = 3}, 2);
    add({.dp = 2, .pp = 2, .zero = 1});
    add({.dp = 2, .pp = 2, .zero = 2});
    add({.dp = 2, .pp = 2, .zero = 3});
    add({.dp = 2, .pp = 2, .vpp = 2, .zero = 2});
    add({.dp = 2, .pp = 2, .zero = 1, .pipeline = Pipeline::zero_bubble});
    add({.dp = 3, .cp = 2, .zero = 1});
    add({.cp = 4, .zero = 3});
    add({.tp = 2, .cp = 2, .zero = 2});
    add({.tp = 2, .pp = 2, .vpp = 2});
    add({.pp = 2, .vpp = 2, .cp = 2});
    add({.dp = 2, .tp = 2, .pp = 2});
    add({.dp = 2, .tp = 2, .pp = 2, .zero = 1});
    add({.dp = 2, .tp = 2, .cp = 2, .zero = 3});
    add({.dp = 2, .pp = 2, .cp = 2, .zero = 2});
    add({.tp = 2, .pp = 2, .cp = 2}, 2);
  }
  // Of parts of newer models.
  for (const Kind kind : {Kind::qwen, Kind::gemma, Kind::granite}) {
    for (const Mesh& mesh :
         {Mesh{.dp = 2}, Mesh{.tp = 2}, Mesh{.pp = 2}, Mesh{.cp = 2}, Mesh{.dp = 2, .zero = 3},
          Mesh{.tp = 2, .pp = 2, .vpp = 2}, Mesh{.dp = 2, .tp = 2, .cp = 2, .zero = 2}}) {
      all.push_back({kind, mesh, 1});
    }
    all.push_back({kind, {.tp = 4}, 2, 0, true});  // of keys that two ranks have
    all.push_back({kind, {.pp = 2}, 1, 0.1, false, true});
  }
  all.push_back({Kind::granite, {.pp = 3, .pipeline = Pipeline::zero_bubble}, 1});
  // Of a mixture of experts.
  const auto routed = [&](const Mesh& mesh, int64_t micro = 1) {
    all.push_back({Kind::experts, mesh, micro});
  };
  routed({.dp = 2});
  routed({.dp = 3, .zero = 1}, 2);
  routed({.dp = 2, .zero = 3});
  routed({.tp = 2});
  routed({.tp = 4}, 3);
  routed({.pp = 2});
  routed({.cp = 2});
  routed({.dp = 2, .ep = 2});
  routed({.dp = 4, .ep = 4}, 2);
  routed({.dp = 4, .ep = 2, .zero = 1});
  routed({.dp = 4, .ep = 2, .zero = 2});
  routed({.dp = 2, .ep = 2, .zero = 3}, 2);
  routed({.dp = 2, .tp = 2});
  routed({.dp = 2, .tp = 2, .zero = 2}, 2);
  routed({.tp = 2, .pp = 2, .pipeline = Pipeline::zero_bubble});
  routed({.tp = 2, .cp = 2});
  routed({.dp = 2, .tp = 2, .ep = 2});
  routed({.dp = 4, .tp = 2, .ep = 2, .zero = 3});
  routed({.tp = 2, .cp = 2, .ep = 2}, 2);
  routed({.dp = 2, .tp = 2, .cp = 2, .ep = 4});
  routed({.dp = 2, .pp = 2, .ep = 2});
  routed({.cp = 2, .ep = 2});
  routed({.dp = 2, .cp = 2, .ep = 4});
  routed({.dp = 2, .tp = 2, .pp = 2, .ep = 2, .zero = 1});
  // What repeats by layer, and what is trained in part.
  all.push_back({Kind::gpt, {.dp = 2, .zero = 2}, 2, 0.1, true});
  all.push_back({Kind::llama, {.dp = 3, .zero = 3}, 1, 0.1, true});
  all.push_back({Kind::gpt, {.tp = 2, .pp = 2}, 1, 0.1, true});
  all.push_back({Kind::gpt, {.dp = 2, .cp = 2}, 1, 0.1});
  all.push_back({Kind::gpt, {.dp = 2, .zero = 3}, 1, 0, false, true});
  all.push_back({Kind::llama, {.dp = 2, .tp = 2, .zero = 3}, 1, 0, false, true});
  all.push_back({Kind::gpt, {.dp = 2, .pp = 2, .zero = 1}, 1, 0, true, true});
  all.push_back({Kind::gpt, {.pp = 3, .pipeline = Pipeline::zero_bubble}, 1, 0.1, true});
  all.push_back({Kind::llama, {.tp = 2, .pp = 2, .pipeline = Pipeline::zero_bubble}, 2, 0, true});
  all.push_back({Kind::experts,
                 {.dp = 2, .pp = 2, .ep = 2, .zero = 1, .pipeline = Pipeline::zero_bubble},
                 1,
                 0,
                 true});
  all.push_back({Kind::experts, {.tp = 2, .pp = 2}, 1, 0, true});
  all.push_back({Kind::experts, {.dp = 2, .zero = 3}, 1, 0, false, true});
  all.push_back({Kind::experts, {.dp = 2, .tp = 2, .ep = 2, .zero = 1}, 1, 0, false, true});
  all.push_back({Kind::experts, {.pp = 2, .cp = 2, .ep = 2}, 1, 0, true, true});
  return all;
}

class NamedLayout : public ::testing::TestWithParam<Layout> {};

TEST_P(NamedLayout, IsAsOneRank) {
  const Layout& layout = GetParam();
  if (!is_to_be_tried(recipe_of(layout), text_of(layout))) GTEST_SKIP() << "not yet";
  expect_same_as_alone(layout);
}

// What every rank does in a step is the list that `tutti plan explain --profile tutti` prices.
TEST_P(NamedLayout, ExecutesWhatThePlannerPrices) {
  const Layout& layout = GetParam();
  const spec::Recipe recipe = recipe_of(layout);
  if (!is_to_be_tried(recipe, text_of(layout))) GTEST_SKIP() << "not yet";
  const catalog::Catalog catalog =
      catalog::load_catalog(posix_file_system(), {std::string(TUTTI_SOURCE_DIR) + "/catalog"});
  const plan::Constants constants;
  std::mutex mutex;
  on_ranks(recipe, [&](const parallel::Ranks& ranks) {
    Trainer trainer(recipe, ranks);
    trainer.initialize();
    std::vector<spec::Action> executed;
    trainer.on_action([&](const spec::Action& action) { executed.push_back(action); });
    RankBatches batches(recipe, ranks.at.dp);
    for (int64_t step = 0; step < 2; ++step) {
      executed.clear();
      trainer.step(batches.step(step), 1e-3, step + 1);
    }
    std::vector<spec::Action> priced;
    for (const plan::PricedAction& one :
         plan::price_actions(recipe, ranks.at, catalog.system("dgx-h100"), constants)) {
      priced.push_back(one.action);
    }
    const std::lock_guard lock(mutex);
    EXPECT_EQ(executed, priced);
  });
}

std::string name(const ::testing::TestParamInfo<Layout>& info) {
  std::string text = text_of(info.param);
  for (char& letter : text) {
    if (std::isalnum(static_cast<unsigned char>(letter)) == 0) letter = '_';
  }
  return text;
}

INSTANTIATE_TEST_SUITE_P(Layouts, NamedLayout, ::testing::ValuesIn(layouts()), name);

}  // namespace
}  // namespace tutti::train
