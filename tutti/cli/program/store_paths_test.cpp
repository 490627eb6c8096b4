#include "tutti/cli/program/store_paths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/cli/program/command_tree.h"
#include "tutti/cli/program/commands.h"

namespace tutti::cli {
namespace {

class StorePaths : public testing::Test {
 protected:
  // The refusal of a command line; empty: there is none. Nothing of it runs.
  static std::string refusal(std::vector<std::string> words) {
    CLI::App program("", "tutti");
    Action action;
    for (const auto add : kCommands) add(program, action);
    std::reverse(words.begin(), words.end());  // as parse() wants them
    program.parse(words);
    try {
      check_store_paths(program);
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      return error.what();
    }
    return {};
  }
};

TEST_F(StorePaths, TheListNamesArgumentsThatAreThere) {
  CLI::App program("", "tutti");
  Action action;
  for (const auto add : kCommands) add(program, action);
  std::set<std::string> known;
  const CommandPage tree = describe_commands(program);
  for (const CommandPage* page : all_pages(tree)) {
    for (const OptionPage& option : page->options) {
      for (const std::string& name : option.names)
        known.insert(join(page->words, " ") + " " + name);
    }
  }
  for (const StoreArgument& each : kStoreArguments) {
    const std::string name = std::string(each.command) + " " + each.argument;
    EXPECT_EQ(known.count(name), 1U) << name;
  }
}

TEST_F(StorePaths, WhatReadsOrWritesStoresMay) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {"data", "prepare", "text", "--out", "s3://lab/c"},
           {"data", "inspect", "s3://lab/c", "--quick"},
           {"eval", "s3://lab/runs/a", "--data", "s3://lab/c", "s3://lab/d"},
           {"generate", "s3://lab/runs/a", "--prompt", "s3://is text"},
           {"endpoint", "s3://lab/runs/a"},
           {"checkpoint", "export", "s3://lab/runs/a", "--out", "here"},
           {"checkpoint", "merge", "s3://lab/runs/a", "--out", "here"},
           {"train", "demo", "data.train=s3://lab/c", "checkpoint.store=s3://lab/runs"},
           {"submit", "demo", "data.train=s3://lab/c"}}) {
    EXPECT_EQ(refusal(words), "") << join(words, " ");
  }
}

TEST_F(StorePaths, AllOthersAreRefusedWithARemedy) {
  const struct {
    std::vector<std::string> words;
    const char* argument;
    const char* remedy;
  } cases[] = {
      {{"train", "demo", "--run", "s3://lab/runs/a"},
       "--run: 's3://lab/runs/a'",
       "checkpoint.store"},
      {{"train", "s3://lab/runs/a"}, "RECIPE: ", "checkpoint.store"},
      {{"submit", "demo", "--run", "s3://lab/runs/a"}, "--run: ", "checkpoint.store"},
      {{"submit", "s3://lab/demo.yaml"}, "RECIPE: ", "copy it to this machine"},
      {{"data", "prepare", "s3://lab/text", "--out", "c"}, "SRC: ", "copy it to this machine"},
      {{"data", "train-tokenizer", "text", "--out", "s3://lab/t.model"}, "--out: ", "copy it from"},
      {{"data", "synthesize", "--out", "s3://lab/text"}, "--out: ", "copy it from there"},
      {{"checkpoint", "import", "model", "--out", "s3://lab/a"}, "--out: ", "copy it from there"},
      {{"checkpoint", "import", "s3://lab/model", "--out", "a"},
       "DIR: ",
       "copy it to this machine"},
      {{"checkpoint", "export", "runs/a", "--out", "s3://lab/a"}, "--out: ", "copy it from there"},
      {{"checkpoint", "merge", "runs/a", "--out", "s3://lab/a"}, "--out: ", "copy it from there"},
      {{"checkpoint", "export-adapter", "runs/a", "--out", "s3://lab/a"},
       "--out: ",
       "copy it from"},
      {{"report", "runs/a", "s3://lab/runs/b"}, "RUN: 's3://lab/runs/b'", "give the run folder"},
      {{"reproduce", "s3://lab/runs/b"}, "RUN: ", "give the run folder"},
      {{"bench", "inference", "--model", "s3://lab/runs/b"},
       "--model: ",
       "copy it to this machine"},
      {{"mlperf", "check", "s3://lab/results"}, "PATH: ", "copy it to this machine"},
      {{"plan", "predict", "s3://lab/demo.yaml", "--system", "dgx-h100", "--gpus", "8"},
       "RECIPE: ",
       "copy it to this machine"},
      {{"eval", "runs/a", "--tasks", "s3://lab/q.jsonl"}, "--tasks: ", "copy it to this machine"},
  };
  for (const auto& [words, argument, remedy] : cases) {
    const std::string said = refusal(words);
    EXPECT_NE(said.find(argument), std::string::npos) << join(words, " ") << ": " << said;
    EXPECT_NE(said.find(remedy), std::string::npos) << join(words, " ") << ": " << said;
    EXPECT_NE(said.find("is in an object store"), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace tutti::cli
