#include "tutti/catalog/chip_names.h"

#include <gtest/gtest.h>

#include "tutti/base/file.h"
#include "tutti_test_paths.h"

namespace tutti::catalog {
namespace {

std::string chip_of(const std::string& product) {
  static const Catalog catalog =
      load_catalog(posix_file_system(), {std::string(TUTTI_SOURCE_DIR) + "/catalog"});
  const Chip* chip = find_chip(catalog, product);
  return chip == nullptr ? "" : chip->name;
}

TEST(ChipNames, TheLongestNameThatAProductContains) {
  EXPECT_EQ(chip_of("NVIDIA Blackwell GPU (GB200)"), "GB200");
  EXPECT_EQ(chip_of("Blackwell GPU (B200-SXM-180GB)"), "B200");
  EXPECT_EQ(chip_of("NVIDIA H100-SXM5-80GB"), chip_of("H100"));
  EXPECT_EQ(chip_of("amd instinct mi325x 256gb hbm3e"), "MI325X");
}

TEST(ChipNames, OtherCardsAndUnknownNamesAreNone) {
  EXPECT_EQ(chip_of("H200-NVL-141GB"), "");
  EXPECT_EQ(chip_of("NVIDIA A100-PCIe-80GB"), "");
  EXPECT_EQ(chip_of("H20"), "");
  EXPECT_EQ(chip_of(""), "");
}

}  // namespace
}  // namespace tutti::catalog
