#include "tutti/plan/collectives.h"

#include <gtest/gtest.h>

#include <cmath>

namespace tutti::plan {
namespace {

// Eight chips joined at 100 bytes/s and 1 s per hop; nodes at 10 bytes/s and 5 s.
catalog::System two_tiers(const std::string& near = "", const std::string& far = "") {
  catalog::System system;
  system.tiers = {{"link", 8, 100, 1, 1, near}, {"network", 0, 10, 5, 1, far}};
  system.chips_per_node = 8;
  return system;
}

TEST(Collectives, RingInsideANode) {
  const catalog::System system = two_tiers();
  const Network network = {&system, 1, 1};
  // 2 (n-1) hops and 2 (n-1)/n of the bytes.
  EXPECT_DOUBLE_EQ(ring_all_reduce_seconds(network, {4, 1}, 400), 6 * 1 + 2 * 300 / 100.0);
  EXPECT_DOUBLE_EQ(gather_seconds(network, {4, 1}, 400), 3 * 1 + 300 / 100.0);
  EXPECT_EQ(ring_all_reduce_seconds(network, {1, 1}, 400), 0);
}

TEST(Collectives, RingOverNodesSharesTheirLinks) {
  const catalog::System system = two_tiers();
  const Network network = {&system, 1, 1};
  // 16 ranks on 2 nodes: a node's 8 network links carry the ring together.
  const double wire = 2 * 15.0 / 16 * 1600;
  EXPECT_DOUBLE_EQ(ring_all_reduce_seconds(network, {16, 1}, 1600),
                   2 * 7 * 1 + 2 * 1 * 5 + std::max(wire / 100, wire / (10 * 8)));
  // With stride 8 each member has a link of its own.
  EXPECT_DOUBLE_EQ(ring_all_reduce_seconds(network, {4, 8}, 400), 2 * 3 * 5 + 2 * 300 / 10.0);
}

TEST(Collectives, TreeHopsGrowWithTheLogarithmOfNodes) {
  const catalog::System system = two_tiers();
  const Network network = {&system, 1, 1};
  const double bytes = 0;
  EXPECT_DOUBLE_EQ(tree_all_reduce_seconds(network, {8 * 16, 1}, bytes),
                   2 * (7 * 1 + std::log2(16.0) * 5));
}

TEST(Collectives, SwitchesReduceIfTheTierSupportsIt) {
  const catalog::System plain = two_tiers();
  EXPECT_TRUE(std::isinf(switch_all_reduce_seconds({&plain, 1, 1}, {8, 1}, 800)));
  const catalog::System nvls = two_tiers("nvls", "sharp");
  const Network network = {&nvls, 1, 1};
  EXPECT_DOUBLE_EQ(switch_all_reduce_seconds(network, {8, 1}, 800), 25e-6 + 9.0 / 8 * 800 / 100);
  EXPECT_DOUBLE_EQ(switch_all_reduce_seconds(network, {16, 1}, 800),
                   25e-6 + 9.0 / 8 * 800 / 100 + 10 + 3.0 / 2 * 100 / 10);
}

TEST(Collectives, HierarchicalReducesNearThenFar) {
  const catalog::System system = two_tiers();
  const Network network = {&system, 1, 1};
  EXPECT_DOUBLE_EQ(hierarchical_all_reduce_seconds(network, {16, 1}, 1600),
                   2 * (7 * 1 + 7.0 / 8 * 1600 / 100) + 2 * (5 + 0.5 * 200 / 10));
  EXPECT_LE(all_reduce_seconds(network, {16, 1}, 1600),
            hierarchical_all_reduce_seconds(network, {16, 1}, 1600));
}

TEST(Collectives, AllToAllPaysTheFarPartOnTheNetwork) {
  const catalog::System system = two_tiers();
  const Network network = {&system, 1, 1};
  EXPECT_DOUBLE_EQ(all_to_all_seconds(network, {8, 1}, 800), 1 + 700 / 100.0);
  // Of 16 ranks 8 are on the other node.
  EXPECT_DOUBLE_EQ(all_to_all_seconds(network, {16, 1}, 1600), 5 + 800 / 10.0);
}

// Pods of two nodes: traffic to the neighbouring node and to other pods shares the adapter.
TEST(Collectives, AllToAllOverPodsPassesTheSameAdapters) {
  catalog::System system = two_tiers();
  catalog::FabricTier pod = system.tiers[1];
  pod.chips = 16;
  system.tiers.insert(system.tiers.begin() + 1, pod);
  const Network network = {&system, 1, 1};
  // Of 32 ranks 24 are on other nodes, 8 of them in the pod.
  EXPECT_DOUBLE_EQ(all_to_all_seconds(network, {32, 1}, 3200), 5 + 2400 / 10.0);
  system.tiers[2].oversubscription = 4;  // between pods
  EXPECT_DOUBLE_EQ(all_to_all_seconds(network, {32, 1}, 3200), 5 + 1600 / 2.5);
}

// The second domain has 4 of 12 ranks: each of them sends two thirds of its data out.
TEST(Collectives, AllToAllOverADomainThatIsNotFull) {
  const catalog::System system = two_tiers();
  const Network network = {&system, 1, 1};
  EXPECT_DOUBLE_EQ(all_to_all_seconds(network, {12, 1}, 1200), 5 + 800 / 10.0);
}

// Tokens that are sent once are distributed over the link: no group is faster than one within a
// domain.
TEST(Collectives, AllToAllOverDomainsIsNeverCheaperThanInsideOne) {
  catalog::System system = two_tiers();
  system.tiers[1].bytes_per_second = 50;
  system.tiers[0].latency_seconds = system.tiers[1].latency_seconds = 0;
  const Network network = {&system, 1, 1};
  const double inside = all_to_all_seconds(network, {8, 1}, 1000, 8);
  for (const int64_t ranks : {9, 10, 12, 15, 16, 24, 64}) {
    EXPECT_GE(all_to_all_seconds(network, {ranks, 1}, 1000, 8), inside) << ranks;
  }
}

TEST(Collectives, SendUsesTheTierThatJoinsBothRanks) {
  const catalog::System system = two_tiers();
  EXPECT_DOUBLE_EQ(send_seconds({&system, 1, 0.5}, 1, 100), 1 + 1);
  EXPECT_DOUBLE_EQ(send_seconds({&system, 1, 0.5}, 8, 100), 5 + 20);
}

TEST(Collectives, OversubscriptionDividesATier) {
  catalog::System system = two_tiers();
  system.tiers[1].oversubscription = 7;
  EXPECT_DOUBLE_EQ(send_seconds({&system, 1, 1}, 8, 10), 5 + 7);
}

}  // namespace
}  // namespace tutti::plan
