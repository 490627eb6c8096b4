#include "tutti/comm/nccl/settings.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>

namespace tutti::comm {
namespace {

NcclSetting setting(const std::vector<NcclSetting>& all, const std::string& name) {
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const auto& one) { return one.name == name; });
  return found == all.end() ? NcclSetting{} : *found;
}

TEST(NcclSettings, FilesAreLinesOfNamesAndValues) {
  EXPECT_EQ(parse_nccl_file("# a comment\nNCCL_DEBUG=WARN\n\nNCCL_SOCKET_IFNAME==ens1f0\nnonsense\n"
                            "NCCL_DEBUG=INFO"),
            (NcclVariables{{"NCCL_DEBUG", "WARN"}, {"NCCL_SOCKET_IFNAME", "=ens1f0"}}));
}

TEST(NcclSettings, TheFirstWhoSaysSoCounts) {
  NcclSources sources;
  sources.environment = {{"NCCL_ALGO", "Ring"}};
  sources.files = {{"own.conf", {{"NCCL_ALGO", "Tree"}, {"NCCL_IB_HCA", "mlx5_0"}}},
                   {"etc.conf", {{"NCCL_IB_HCA", "mlx5_1"}, {"NCCL_COLLNET_ENABLE", "0"}}}};
  const auto all = nccl_settings(sources, 2);
  EXPECT_EQ(setting(all, "NCCL_ALGO"), (NcclSetting{"NCCL_ALGO", "Ring", "environment", ""}));
  EXPECT_EQ(setting(all, "NCCL_IB_HCA"), (NcclSetting{"NCCL_IB_HCA", "mlx5_0", "own.conf", ""}));
  EXPECT_EQ(setting(all, "NCCL_COLLNET_ENABLE").origin, "etc.conf");
  EXPECT_EQ(setting(all, "NCCL_LAUNCH_ORDER_IMPLICIT").origin, "tutti");
  EXPECT_EQ(setting(all, "NCCL_NVLS_ENABLE").origin, "NCCL's default");
}

TEST(NcclSettings, SharpIsRequestedBetweenHostsOnly) {
  EXPECT_EQ(setting(nccl_settings({}, 1), "NCCL_COLLNET_ENABLE").origin, "NCCL's default");
  const NcclSetting asked = setting(nccl_settings({}, 2), "NCCL_COLLNET_ENABLE");
  EXPECT_EQ(asked.origin, "tutti");
  EXPECT_EQ(asked.value, "1");
}

TEST(NcclSettings, OnlyTuttisChoicesAreExported) {
  unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
  unsetenv("NCCL_ALGO");
  NcclSources sources;
  sources.files = {{"own.conf", {{"NCCL_PROTO", "Simple"}}}};
  apply_nccl_settings(nccl_settings(sources, 1));
  EXPECT_STREQ(std::getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "1");
  EXPECT_EQ(std::getenv("NCCL_ALGO"), nullptr);
  EXPECT_EQ(std::getenv("NCCL_PROTO"), nullptr);
  // Once set, it is the environment that says so.
  EXPECT_EQ(setting(nccl_settings(read_nccl_sources(), 1), "NCCL_LAUNCH_ORDER_IMPLICIT").origin,
            "environment");
  unsetenv("NCCL_LAUNCH_ORDER_IMPLICIT");
}

TEST(NcclSettings, TheTableNamesOriginAndReason) {
  const std::string text = nccl_settings_text(nccl_settings({}, 2));
  EXPECT_NE(text.find("NCCL_COLLNET_ENABLE"), std::string::npos);
  EXPECT_NE(text.find("tutti (network SHARP where the fabric has it)"), std::string::npos);
  EXPECT_NE(text.find("NCCL's default"), std::string::npos);
}

}  // namespace
}  // namespace tutti::comm
