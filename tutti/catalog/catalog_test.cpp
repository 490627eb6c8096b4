#include "tutti/catalog/catalog.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti_test_paths.h"

namespace tutti::catalog {
namespace {

const Catalog& shipped() {
  static const Catalog catalog =
      load_catalog(posix_file_system(), {std::string(TUTTI_SOURCE_DIR) + "/catalog"});
  return catalog;
}

TEST(Catalog, ShippedEntriesAreCompleteAndPlausible) {
  EXPECT_GE(shipped().chips.size(), 13U);
  for (const Chip& chip : shipped().chips) {
    SCOPED_TRACE(chip.name);
    EXPECT_GT(std::max(chip.bf16_flops, chip.fp8_flops), 1e14);
    EXPECT_LT(chip.bf16_flops, 1e16);
    if (chip.fp8_flops > 0 && chip.bf16_flops > 0) {
      EXPECT_NEAR(chip.fp8_flops / chip.bf16_flops, 2, 0.06);
    }
    // Data sheets count in gigabytes of 10^9 or 2^30 bytes.
    const double sheet = chip.entry.number("memory_gigabytes") * 1e9;
    EXPECT_GE(chip.memory_bytes, sheet);
    EXPECT_LE(chip.memory_bytes, sheet * 1.0738);
    // 72 Blackwell Ultra chips are sold as 1,440 PF of sparse FP4; dense is less.
    if (chip.sparse_fp4_flops > 0) {
      EXPECT_LT(chip.fp4_flops, chip.sparse_fp4_flops);
    }
    EXPECT_GT(chip.memory_bytes_per_second, 1e12 * 0.9);
  }
  for (const System& system : shipped().systems) {
    SCOPED_TRACE(system.name);
    ASSERT_GE(system.tiers.size(), 2U);
    // A farther tier is never faster.
    for (size_t i = 1; i < system.tiers.size(); ++i) {
      EXPECT_LE(system.tiers[i].bytes_per_second, system.tiers[i - 1].bytes_per_second);
    }
    EXPECT_EQ(system.tiers.back().chips, 0);
  }
}

TEST(Catalog, RackOfGb300MatchesItsPublishedSums) {
  const System& system = shipped().system("azure-nd-gb300-v6");
  EXPECT_EQ(system.chips_per_node * system.nodes_per_rack, 72);
  EXPECT_NEAR(72 * system.chip.sparse_fp4_flops,
              system.entry.number("rack_sparse_fp4_tflops") * 1e12, 1e15);
  // 130 TB/s counts both directions.
  EXPECT_NEAR(72 * 2 * system.tiers[0].bytes_per_second / 1e12,
              system.entry.number("rack_link_terabytes_per_second"), 1);
  const double sheet = system.chip.entry.number("memory_gigabytes") * 1e9;
  const double memory = 72 * sheet + 18 * system.host_memory_bytes;
  EXPECT_NEAR(memory / 1e12, system.entry.number("rack_memory_terabytes"), 1.5);
}

// What is not published stays absent, and is said where it would be needed.
TEST(Catalog, ChipWithoutA16BitRateIsNotPriced) {
  const Chip& chip = shipped().chip("Maia 200");
  EXPECT_EQ(chip.bf16_flops, 0);
  EXPECT_EQ(chip.memory_bytes, 216e9);
  try {
    check_precision(chip, spec::Precision::fp8);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
    EXPECT_NE(std::string(error.what()).find("Maia-200: its rate of 16-bit products"),
              std::string::npos)
        << error.what();
  }
  for (const char* name : {"MI325X", "MI350X", "MI355X", "Trainium2", "TPU-v6e", "TPU7x"}) {
    EXPECT_NO_THROW(check_precision(shipped().chip(name), spec::Precision::bf16)) << name;
  }
  EXPECT_EQ(shipped().chip("TPU-v6e").board_watts, 0);  // not published
}

// nvidia-smi: 81,559 MiB of a chip that is sold with 80 GB.
TEST(Catalog, MemoryIsWhatTheChipReports) {
  EXPECT_NEAR(shipped().chip("H100").memory_bytes, 81559.0 * 1024 * 1024, 1e7);
  EXPECT_NEAR(shipped().chip("B200").memory_bytes, 183359.0 * 1024 * 1024, 1e7);
}

// A board limited below its chip's usual power sustains what the power left over idle pays for.
TEST(Catalog, BoardsOfLessPowerSustainLess) {
  EXPECT_EQ(shipped().chip("H100").power_share, 1);
  EXPECT_NEAR(shipped().chip("H100-96-500W").power_share, (500 - 140) / 560.0, 1e-12);
  const auto board = [](const char* watts) {
    return chip_from(parse_entry(
        std::string("kind: chip\nname: C\nsource: {text: t, date: 2026-01-01}\n"
                    "texts: {vendor: v, generation: g}\nquantities: {dense_bf16_tflops: 100, "
                    "memory_gigabytes: 80, memory_terabytes_per_second: 3, "
                    "link_gigabytes_per_second: 1, usual_power_watts: 700, board_power_watts: ") +
            watts + "}\n",
        "c.yaml"));
  };
  EXPECT_EQ(board("1000").power_share, 1);
  EXPECT_THROW(board("140"), Error);
}

TEST(Catalog, FindsByAliasAndSuggests) {
  EXPECT_EQ(shipped().chip("h100-sxm5-80gb").name, "H100");
  try {
    shipped().system("azure-nd-h100v5");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::not_found);
    EXPECT_NE(std::string(error.what()).find("did you mean 'azure-nd-h100-v5'?"), std::string::npos)
        << error.what();
  }
}

TEST(Catalog, PricesHaveDatesAndGaps) {
  const Price* price = shipped().price_of("azure-nd-h100-v5");
  ASSERT_NE(price, nullptr);
  EXPECT_EQ(price->usd_per_hour(PriceKind::on_demand), 12.29);
  EXPECT_THROW(price->usd_per_hour(PriceKind::reserved), Error);
  EXPECT_THROW(parse_price_kind("free"), Error);
}

// A user's folder with one file adds a system, and corrects an entry of ours.
TEST(Catalog, LaterFoldersAddAndReplace) {
  MemoryFileSystem files;
  const auto put = [&](const std::string& path, const std::string& text) {
    files.create_directories(parent_path(path));
    write_file_atomic(files, path, text);
  };
  const std::string source = "source: {text: t, date: 2026-01-01}\n";
  const auto chip = [&](const char* tflops) {
    return "kind: chip\nname: C\n" + source + "texts: {vendor: v, generation: g}\nquantities: {" +
           "dense_bf16_tflops: " + tflops +
           ", memory_gigabytes: 80, memory_terabytes_per_second: 3, link_gigabytes_per_second: "
           "1}\n";
  };
  put("a/chips/c.yaml", chip("100"));
  put("a/fabrics/f.yaml",
      "kind: fabric\nname: F\n" + source + "tiers: [{name: n, gigabytes_per_second: 10}]\n");
  put("b/chips/c.yaml", chip("200"));
  put("b/systems/s.yaml",
      "kind: system\nname: S\n" + source +
          "texts: {chip: C, fabric: F}\nquantities: {chips_per_node_count: 8}\n");
  const Catalog catalog = load_catalog(files, {"a", "b"});
  EXPECT_EQ(catalog.system("S").chip.bf16_flops, 200e12);

  put("b/systems/t.yaml",
      "kind: system\nname: T\n" + source +
          "texts: {chip: D, fabric: F}\nquantities: {chips_per_node_count: 8}\n");
  EXPECT_THROW(load_catalog(files, {"a", "b"}), Error);
}

// What a user's own files may get wrong without any sign of it in the numbers.
TEST(Catalog, WrongEntriesAreRefused) {
  const std::string source = "source: {text: t, date: 2026-01-01}\n";
  const auto chip = [&](const char* memory) {
    return "kind: chip\nname: C\n" + source +
           "texts: {vendor: v, generation: g}\nquantities: {dense_bf16_tflops: 1, "
           "memory_gigabytes: 80, link_gigabytes_per_second: 1, memory_terabytes_per_second: " +
           memory + "}\n";
  };
  const auto fabric = [&](const char* tiers) {
    return "kind: fabric\nname: F\n" + source + "tiers: [" + tiers + "]\n";
  };
  const auto system = [&](const char* quantities) {
    return "kind: system\nname: S\n" + source + "texts: {chip: C, fabric: F}\nquantities: {" +
           quantities + "}\n";
  };
  const auto price = [&](const char* name, const char* of) {
    return std::string("kind: price\nname: ") + name + "\n" + source + "texts: {system: " + of +
           "}\nquantities: {on_demand_chip_usd_per_hour: 2}\n";
  };
  const std::string tier = "{name: n, gigabytes_per_second: 10}";
  const auto load = [&](const std::vector<std::pair<std::string, std::string>>& more) {
    MemoryFileSystem files;
    std::vector<std::pair<std::string, std::string>> all = {
        {"chips/c.yaml", chip("3")},
        {"fabrics/f.yaml", fabric(tier.c_str())},
        {"systems/s.yaml", system("chips_per_node_count: 8")}};
    all.insert(all.end(), more.begin(), more.end());
    for (const auto& [path, text] : all) {
      files.create_directories(parent_path("a/" + path));
      write_file_atomic(files, "a/" + path, text);
    }
    return load_catalog(files, {"a"});
  };
  const auto refused = [&](const std::vector<std::pair<std::string, std::string>>& more) {
    try {
      load(more);
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  const auto expect = [&](const std::string& message, const char* part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  EXPECT_EQ(refused({}), "");
  expect(refused({{"chips/c.yaml", chip("0")}}), "memory_terabytes_per_second: must be above zero");
  expect(refused({{"systems/s.yaml", system("chips_per_node_count: 7.5")}}),
         "chips_per_node_count: 7.5 is not a whole number");
  expect(refused({{"fabrics/f.yaml",
                   fabric("{name: n, gigabytes_per_second: 10, latency_seconds: 1}")}}),
         "tiers.n.latency_seconds: a tier has no such key");
  expect(refused(
             {{"fabrics/f.yaml", fabric("{name: n, gigabytes_per_second: 10, reductions: nvls}")}}),
         "tiers.n.reductions: a tier has no such key");
  expect(refused({{"fabrics/f.yaml", fabric((tier + ", {name: m, chips_count: 8, "
                                                    "gigabytes_per_second: 10}")
                                                .c_str())}}),
         "tiers.m: never reached");
  std::string five;
  for (const char* text : {"1", "2", "4", "8"}) {
    five += fmt::format("{{name: n{0}, chips_count: {0}, gigabytes_per_second: 10}}, ", text);
  }
  five += "{name: far, gigabytes_per_second: 10}";
  expect(refused({{"fabrics/f.yaml", fabric(five.c_str())}}), "tiers: 5 are there; at most 4");
  const std::string eight = fabric("{name: n, chips_count: 8, gigabytes_per_second: 10}");
  expect(refused({{"fabrics/f.yaml", eight}}), "the farthest tier of fabric F joins 8 chips");
  EXPECT_EQ(
      refused({{"fabrics/f.yaml", eight},
               {"systems/s.yaml", system("chips_per_node_count: 8, largest_chips_count: 8")}}),
      "");
  // A system is found by its name in any case, its price too, and it has one price.
  EXPECT_NE(load({{"prices/p.yaml", price("P", "s")}}).price_of("S"), nullptr);
  expect(refused({{"prices/p.yaml", price("P", "S")}, {"prices/q.yaml", price("Q", "S")}}),
         "S has a price already, in a/prices/p.yaml; to replace it, write name: P");
}

}  // namespace
}  // namespace tutti::catalog
