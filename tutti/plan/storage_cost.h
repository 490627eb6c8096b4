// What a measured storage (catalog/storage.h) means for a run, per node, as if it served every node
// as it served the one that measured it:
//
//   save   12 bytes per trainable parameter, spread over the nodes, at the rate of one save
//   start  a node reads the weights of the replicas it holds, or its part of one, 4 P min(1, c /
//   m),
//          and its part of the moments, 8 T / nodes: P parameters, T of them trainable, c chips of
//          a node, m ranks of one replica; without ZeRO the moments are read like the weights. At
//          the rate of one load
//   feed   samples/s of a node = batch.global / step * max(1 / dp, 1 / nodes); each of n =
//   (sequence
//          + 1) * bytes per token, at random in the corpus, touches 1 + (n - 1) / piece pieces of
//          64 KiB, or, of a disk, of 4 KiB where that is faster; at the rate of several readers
//
// Where the feed needs more than the storage gives, steps wait: they take needed / given times as
// long. Saves run beside training, so that one limits only how often there can be another.
#pragma once

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/catalog/storage.h"
#include "tutti/catalog/systems.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::plan {

struct StorageForecast {
  std::string storage;
  std::string source;
  double save_seconds = 0;   // of a checkpoint
  double start_seconds = 0;  // to load the state
  double sample_bytes = 0;
  double needed_samples_per_second = 0;  // of a node
  double given_samples_per_second = 0;
  double feed_factor = 1;  // that steps take as long as without waiting for data
  // Between checkpoints in storage; infinite: the run is over before one is due.
  double interval_seconds = std::numeric_limits<double>::infinity();

  bool starves_feed() const { return feed_factor > 1; }
  bool starves_saves() const { return save_seconds > interval_seconds; }
};

StorageForecast forecast_storage(const catalog::Storage& storage, const spec::Recipe& recipe,
                                 const catalog::System& system, double step_seconds);

// One sentence: which storage would starve the accelerators, of what; or that it would not.
std::string verdict_text(const StorageForecast& forecast);
Json to_json(const StorageForecast& forecast);
std::vector<std::pair<std::string, std::string>> describe(const StorageForecast& forecast);

}  // namespace tutti::plan
