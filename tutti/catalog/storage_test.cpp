#include "tutti/catalog/storage.h"

#include <gtest/gtest.h>

#include "tutti/base/error.h"

namespace tutti::catalog {
namespace {

Storage sample_storage() {
  Storage storage;
  storage.name = "scratch: of \"node\" 7";
  storage.path = "/scratch";
  storage.machine = "node-7";
  storage.reads_from = "O_DIRECT";
  storage.figures = {{"checkpoint_save_gigabytes_per_second", 1.5},
                     {"checkpoint_load_gigabytes_per_second", 3},
                     {"random_64k_many_per_second", 1e4},
                     {"random_64k_many_p99_microseconds", 812.5}};
  return storage;
}

TEST(StorageEntry, WhatIsWrittenIsReadBack) {
  const std::string yaml = storage_yaml(sample_storage(), "tutti bench: one run", "2026-11-28");
  const Storage read = storage_from(parse_entry(yaml, "written"));
  EXPECT_EQ(read.name, sample_storage().name);
  EXPECT_EQ(read.path, sample_storage().path);
  EXPECT_EQ(read.machine, sample_storage().machine);
  EXPECT_EQ(read.reads_from, sample_storage().reads_from);
  EXPECT_EQ(read.figures, sample_storage().figures);
  EXPECT_EQ(read.source, "tutti bench: one run, 2026-11-28");
  EXPECT_EQ(read.checkpoint_save_bytes_per_second(), 1.5e9);
  EXPECT_EQ(read.checkpoint_load_bytes_per_second(), 3e9);
  EXPECT_EQ(read.random_bytes_per_second(), 65536e4);
  EXPECT_EQ(read.figure("stat_per_second"), 0);
}

TEST(StorageEntry, EveryFigureHasAUnit) {
  for (const std::string& figure : storage_figures()) EXPECT_TRUE(unit_of(figure)) << figure;
}

TEST(StorageEntry, AnotherKindAMissingAndAnUnknownQuantityAreErrors) {
  const std::string good = storage_yaml(sample_storage(), "s", "2026-11-28");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return parse_entry(text, "x.yaml");
  };
  EXPECT_THROW(storage_from(with("kind: storage", "kind: node")), Error);
  EXPECT_THROW(storage_from(with("checkpoint_save_", "write_")), Error);
  EXPECT_THROW(storage_from(with("checkpoint_save_", "checkpoint_safe_")), Error);
  EXPECT_THROW(storage_from(with("load_gigabytes_per_second: 3", "load_gigabytes_per_second: 0")),
               Error);
}

}  // namespace
}  // namespace tutti::catalog
