// The ranks are threads of this process that behave as if they were on several hosts, each of which
// has a folder of its own.
#include "tutti/train/session/peer_copies.h"

#include <gtest/gtest.h>

#include <mutex>

#include "tutti/base/hash.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/comm/world/thread_world.h"
#include "tutti/train/session/run_state.h"
#include "tutti/train/step/state_fetch.h"
#include "tutti/train/testing/layouts.h"

namespace tutti::train {
namespace {

using namespace testing;

std::string folder_of(int64_t rank, int64_t per_host) {
  return "host-" + std::to_string(rank / per_host);
}

// Trains `recipe` on its mesh, `per_host` ranks on each host, up to `steps`; keeps copies of every
// step, resumes from them if there are any. Losses of its own steps.
struct Kept {
  std::vector<double> losses;
  std::vector<std::string> problems;  // of keeping, by step
  std::vector<std::string> warnings;  // of finding
  int64_t first_step = 0;
};

Kept run(const spec::Recipe& recipe, int64_t per_host, int64_t steps, MemoryFileSystem& files,
         const std::function<void(int64_t step)>& before_keep = {},
         const std::string& key_file = {}, bool fetched = false) {
  Kept out;
  std::mutex mutex;
  const auto host_of = [&](int64_t rank) { return folder_of(rank, per_host); };
  comm::run_threads(
      recipe.parallel,
      [&](comm::World& world, engine::Stream&) {
        const RankConsensus consensus(&world, recipe.model.kv_heads);
        PeerCopies copies(files, host_of(consensus.rank()), "run", key_file, consensus);
        Trainer trainer(recipe, consensus.ranks(), {.enqueue_steps = fetched});
        trainer.initialize();
        std::optional<StateFetch> fetch;
        if (fetched) fetch.emplace(trainer, 1000);
        int64_t step = 0;
        const auto warn = [&](const std::string& text) { out.warnings.push_back(text); };
        if (const auto path = copies.find_newer(-1, warn)) {
          checkpoint::Reader reader(files, *path);
          load_state(reader, trainer);
          step = reader.manifest().state.step;
        }
        RankBatches batches(recipe, consensus.ranks().at.dp);
        if (consensus.leads()) out.first_step = step;
        while (step < steps) {
          const StepResult result =
              trainer.step(batches.step(step), recipe.optimizer.learning_rate, step + 1);
          RunState state;
          state.step = ++step;
          if (consensus.leads() && before_keep) before_keep(step);
          const auto problem = copies.keep(fetch ? fetch->tensors() : checkpoint_tensors(trainer),
                                           to_checkpoint_state(state, recipe));
          if (!consensus.leads()) continue;
          const std::lock_guard lock(mutex);
          out.losses.push_back(result.loss);
          out.problems.push_back(problem.value_or(""));
        }
      },
      {}, 1, [&](comm::WorldOptions& own) { own.host = host_of(own.rank); });
  return out;
}

std::vector<double> tail(const std::vector<double>& all, size_t from) {
  return {all.begin() + static_cast<int64_t>(from), all.end()};
}

spec::Recipe sharded(int64_t ranks) {
  return recipe_on(gpt_recipe(), {.dp = ranks, .zero = ranks > 1 ? 1 : 0});
}

TEST(PeerCopies, AnyHostMayBeLost) {
  const spec::Recipe recipe = sharded(4);
  MemoryFileSystem whole;
  const Kept undisturbed = run(recipe, 2, 6, whole);
  for (const char* lost : {"host-0", "host-1"}) {
    MemoryFileSystem files;
    run(recipe, 2, 4, files);
    files.remove_tree(lost);
    const Kept again = run(recipe, 2, 6, files);
    EXPECT_EQ(again.first_step, 4);
    EXPECT_EQ(again.losses, tail(undisturbed.losses, 4)) << lost;
  }
}

// As from a device, whose memory the host does not reach.
TEST(PeerCopies, FetchedStateGivesTheSameCopies) {
  spec::Recipe recipe = sharded(2);
  recipe.precision = spec::Precision::bf16;
  MemoryFileSystem whole, files;
  const Kept undisturbed = run(recipe, 1, 5, whole);
  const Kept fetched = run(recipe, 1, 3, files, {}, {}, true);
  EXPECT_EQ(fetched.problems, std::vector<std::string>(3));
  files.remove_tree("host-1");
  const Kept again = run(recipe, 1, 5, files);
  EXPECT_EQ(again.first_step, 3);
  EXPECT_EQ(again.losses, tail(undisturbed.losses, 3));
}

// Three hosts, one lost: the two others continue alone, as fewer ranks on another mesh.
TEST(PeerCopies, TheRestGoesOnWithFewerRanks) {
  for (const char* lost : {"host-0", "host-1", "host-2"}) {
    MemoryFileSystem whole, files;
    const Kept undisturbed = run(sharded(3), 1, 6, whole);
    run(sharded(3), 1, 3, files);
    files.remove_tree(lost);
    // The hosts that are left have numbers of their own now.
    if (lost == std::string("host-0")) files.rename("host-2", "host-0");
    if (lost == std::string("host-1")) files.rename("host-2", "host-1");
    const Kept again = run(sharded(2), 1, 6, files);
    EXPECT_EQ(again.first_step, 3) << lost;
    for (size_t i = 0; i < again.losses.size(); ++i) {
      EXPECT_NEAR(again.losses[i] / undisturbed.losses[3 + i], 1, 1e-5) << lost;
    }
  }
}

TEST(PeerCopies, TwoNeighboursLostIsTooMuch) {
  MemoryFileSystem files;
  run(sharded(3), 1, 2, files);
  files.remove_tree("host-0");
  files.remove_tree("host-1");
  EXPECT_EQ(run(sharded(3), 1, 2, files).first_step, 0);
}

// What is there of a newer step, but not whole, does not count; the set before it is still there.
TEST(PeerCopies, FullDisksLoseOnlyTheNewSet) {
  MemoryFileSystem files;
  const Kept full = run(sharded(2), 1, 4, files, [&](int64_t step) {
    if (step == 3) files.set_capacity(0);
  });
  EXPECT_EQ(full.problems[1], "");
  EXPECT_NE(full.problems[2], "");
  EXPECT_NE(full.problems[3], "");
  files.set_capacity(INT64_MAX);
  EXPECT_EQ(run(sharded(2), 1, 4, files).first_step, 2);
}

TEST(PeerCopies, DamagedOnesAreNotTaken) {
  MemoryFileSystem files;
  run(sharded(2), 1, 2, files);
  for (const char* host : {"host-0", "host-1"}) {
    const std::string folder =
        checkpoint::pieces_path(host, checkpoint::list_pieces(files, host)[0]);
    for (const DirectoryEntry& entry : files.list(folder)) {
      if (entry.name.find("shard") == std::string::npos) continue;
      files.damage(join_path(folder, entry.name), entry.size_bytes - 1, 1);
    }
  }
  const Kept again = run(sharded(2), 1, 2, files);
  EXPECT_EQ(again.first_step, 0);
  ASSERT_EQ(again.warnings.size(), 1U);
  EXPECT_NE(again.warnings[0].find("the copies of step 2 in memory are not taken: rank 0: "),
            std::string::npos)
      << again.warnings[0];
}

TEST(PeerCopies, OfASealedRunAreSealed) {
  MemoryFileSystem whole, files;
  const Kept undisturbed = run(sharded(2), 1, 4, whole);
  write_file_atomic(files, "key", std::string(64, 'a'));
  run(sharded(2), 1, 2, files, {}, "key");
  for (const DirectoryEntry& entry :
       files.list(checkpoint::pieces_path("host-1", checkpoint::list_pieces(files, "host-1")[0]))) {
    EXPECT_EQ(entry.name.find("safetensors"), std::string::npos) << entry.name;
  }
  files.remove_tree("host-0");
  const Kept again = run(sharded(2), 1, 4, files, {}, "key");
  EXPECT_EQ(again.first_step, 2);
  EXPECT_EQ(again.losses, tail(undisturbed.losses, 2));
  // Without the key they are not taken, and that is said.
  files.rename("key", "elsewhere");
  const Kept without = run(sharded(2), 1, 1, files, {}, "key");
  EXPECT_EQ(without.first_step, 0);
  ASSERT_EQ(without.warnings.size(), 1U);
  EXPECT_NE(without.warnings[0].find("step 4"), std::string::npos) << without.warnings[0];
}

TEST(PeerCopies, GoWithTheRunThatForgetsThem) {
  MemoryFileSystem files;
  files.create_directories("runs/a");
  files.create_directories("memory");
  const auto keep = [&](const std::string& run, const std::string& number) {
    write_file_atomic(files, join_path(run, "peer-copies"), number + "\n");
    std::string folder =
        peer_copies_folder("memory", hash_text(read_file(files, join_path(run, "peer-copies"))));
    files.create_directories(folder);
    write_file_atomic(files, join_path(folder, "run"), run);
    return folder;
  };
  const std::string old = keep("runs/a", "1");
  const std::string now = keep("runs/a", "2");
  files.create_directories("memory/tutti-without-owner-" + peer_copies_host());
  files.create_directories("memory/others");
  EXPECT_EQ(sweep_peer_copies(files, "memory"), 1);  // the run has another number now
  EXPECT_FALSE(files.exists(old));
  EXPECT_TRUE(files.exists(now));
  forget_peer_copies(files, "runs/a");
  files.rename("runs/a", "runs/b");  // as on a host that does not see the run folder
  EXPECT_EQ(sweep_peer_copies(files, "memory"), 0);
  files.rename("runs/b", "runs/a");
  EXPECT_EQ(sweep_peer_copies(files, "memory"), 1);
  EXPECT_EQ(sweep_peer_copies(files, "memory"), 0);
  EXPECT_EQ(files.list("memory").size(), 2U);
  EXPECT_EQ(sweep_peer_copies(files, "nowhere"), 0);
}

TEST(PeerCopies, NeedRoomOnEveryHost) {
  comm::run_threads(
      sharded(3).parallel,
      [&](comm::World& world, engine::Stream&) {
        MemoryFileSystem files;
        const RankConsensus consensus(&world, 1);
        PeerCopies copies(files, folder_of(consensus.rank(), 1), "run", "", consensus);
        // Its own part and one of its neighbour's, twice.
        EXPECT_EQ(copies.lacks_room(100, 400), std::nullopt);
        const auto problem = copies.lacks_room(100, consensus.rank() == 1 ? 399 : 1000);
        EXPECT_NE(problem.value_or("").find("host of rank 1"), std::string::npos)
            << problem.value_or("");
      },
      {}, 1, [](comm::WorldOptions& own) { own.host = folder_of(own.rank, 1); });
}

TEST(PeerCopies, EveryRankHasAPeerOnTheNextHost) {
  EXPECT_EQ(peer_on_next_host({0, 0, 0}, 1), -1);
  const std::vector<int> hosts = {0, 0, 1, 1, 2};
  const std::vector<int64_t> expected = {2, 3, 4, 4, 0};
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    EXPECT_EQ(peer_on_next_host(hosts, static_cast<int64_t>(rank)), expected[rank]);
  }
}

}  // namespace
}  // namespace tutti::train
