#include "tutti/base/process_output.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"

namespace tutti {
namespace {

std::vector<std::string> shell(const std::string& command) { return {"sh", "-c", command}; }

TEST(ProcessOutput, IsGivenWhole) {
  EXPECT_EQ(output_of("/bin/sh", shell("echo \"$GIVEN\"; echo no >&2; exit 3"), {{"GIVEN", "a=b"}}),
            "a=b\n");
  EXPECT_EQ(output_of("/bin/sh", shell("head -c 300000 /dev/zero"), {{"A", "b"}}).size(), 300000U);
  EXPECT_EQ(output_of("/bin/sh", shell("wc -c"), {{"A", "b"}}), "0\n");  // standard input is empty
}

TEST(ProcessOutput, VariableReplacesAnEarlierOne) {
  EXPECT_EQ(output_of("/bin/sh", shell("env | grep -c ^PATH="), {{"PATH", "/usr/bin:/bin"}}),
            "1\n");
  EXPECT_NE(output_of("/bin/sh", shell("echo $PATH"), {{"A", "b"}}), "\n");
}

TEST(ProcessOutput, WhatIsNotThereIsAnError) {
  EXPECT_THROW(output_of("/nowhere", {"x"}, {{"A", "b"}}), Error);
}

}  // namespace
}  // namespace tutti
