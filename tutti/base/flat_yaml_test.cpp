#include "tutti/base/flat_yaml.h"

#include <gtest/gtest.h>

namespace tutti {
namespace {

using Pairs = std::vector<std::pair<std::string, std::string>>;

TEST(FlatYaml, KeysByPath) {
  EXPECT_EQ(flatten_yaml("model:\n  layers: 4\n  rope:\n    factor: 1\nprecision: bf16\n"
                         "run:\n  name: \"a: b\"\n\n"),
            (Pairs{{"model.layers", "4"},
                   {"model.rope.factor", "1"},
                   {"precision", "bf16"},
                   {"run.name", "\"a: b\""}}));
  EXPECT_EQ(flatten_yaml(""), Pairs());
  EXPECT_EQ(flatten_yaml("      deep: 1\n- item\n"), (Pairs{{"...deep", "1"}}));
}

}  // namespace
}  // namespace tutti
