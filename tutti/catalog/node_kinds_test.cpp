#include "tutti/catalog/node_kinds.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"
#include "tutti_test_paths.h"

namespace tutti::catalog {
namespace {

NodeKind sample() {
  NodeKind kind;
  kind.name = "two cores: \"odd\" name";
  kind.cores = 2;
  kind.numa_nodes = 1;
  kind.memory_bytes = 25e9;
  kind.governor = "performance";
  kind.figures["f32_product_tflops"] = {0.4, 0.08};
  kind.figures["disk_fsync_microseconds"] = {800, std::nullopt};
  return kind;
}

TEST(NodeKinds, WhatIsWrittenIsReadBack) {
  const NodeKind kind = sample();
  const std::string yaml = node_kind_yaml(kind, "AMD: EPYC #1", "tutti check", "2026-11-20");
  const NodeKind read = node_kind_from(parse_entry(yaml, "written"));
  EXPECT_EQ(read.name, kind.name);
  EXPECT_EQ(read.cores, kind.cores);
  EXPECT_EQ(read.numa_nodes, kind.numa_nodes);
  EXPECT_EQ(read.memory_bytes, kind.memory_bytes);
  EXPECT_EQ(read.governor, kind.governor);
  EXPECT_FALSE(read.gpus);
  ASSERT_EQ(read.figures.size(), 2U);
  EXPECT_EQ(read.figures.at("f32_product_tflops").value, 0.4);
  EXPECT_EQ(read.figures.at("f32_product_tflops").tolerance, 0.08);
  EXPECT_FALSE(read.figures.at("disk_fsync_microseconds").tolerance);
  EXPECT_EQ(read.source, "tutti check, 2026-11-20");
}

TEST(NodeKinds, EveryFigureHasAUnit) {
  for (const std::string& figure : node_figures()) EXPECT_TRUE(unit_of(figure)) << figure;
}

TEST(NodeKinds, UnknownQuantitiesAndInvalidTolerancesAreErrors) {
  const std::string head =
      "kind: node\nname: n\nsource: {text: t, date: 2026-11-20}\nquantities:\n";
  EXPECT_THROW(node_kind_from(parse_entry(head + "  f32_produkt_tflops: 1\n", "x")), Error);
  EXPECT_THROW(node_kind_from(parse_entry(head + "  clock_gigahertz: 3\n"
                                                 "  clock_tolerance_ratio: 1.5\n",
                                          "x")),
               Error);
}

TEST(NodeKinds, ANodeOfASystemHasItsChips) {
  const std::vector<std::string> folders = {TUTTI_SOURCE_DIR "/catalog"};
  const NodeKind kind = load_node_kind(posix_file_system(), folders, "DGX-H100");
  EXPECT_EQ(kind.gpus, 8);
  EXPECT_EQ(kind.memory_bytes, 2000e9);
  ASSERT_FALSE(kind.gpu_names.empty());
  EXPECT_EQ(kind.gpu_names.front(), "H100");
  try {
    load_node_kind(posix_file_system(), folders, "dgx-h10");
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("did you mean"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace tutti::catalog
