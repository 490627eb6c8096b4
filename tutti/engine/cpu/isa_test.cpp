#include "tutti/engine/cpu/isa.h"

#include <gtest/gtest.h>

#include <string>

#include "tutti/base/error.h"
#include "tutti/engine/stream.h"

namespace tutti::engine {
namespace {

TEST(Isa, AvailableAscendFromPlain) {
  const auto isas = available_isas();
  ASSERT_FALSE(isas.empty());
  EXPECT_EQ(isas.front(), Isa::plain);
  for (size_t i = 1; i < isas.size(); ++i) EXPECT_EQ(isas[i], static_cast<Isa>(i));
}

TEST(Isa, EveryAvailableIsSelectable) {
  const std::string before = cpu_isa();
  for (const Isa isa : available_isas()) {
    select_cpu_isa(isa_name(isa));
    EXPECT_EQ(cpu_isa(), isa_name(isa));
    EXPECT_EQ(use_bf16_dot(), isa == Isa::avx512_bf16);
  }
  select_cpu_isa(before);
}

TEST(Isa, UnknownNameIsAUsageError) {
  try {
    select_cpu_isa("avx1024");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("'avx1024'"), std::string::npos);
  }
}

TEST(Isa, MissingIsUnsupported) {
  if (available_isas().back() == Isa::avx512_bf16)
    GTEST_SKIP() << "skipped: this machine has all instruction sets";
  try {
    set_isa(Isa::avx512_bf16);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::unsupported);
  }
}

}  // namespace
}  // namespace tutti::engine
