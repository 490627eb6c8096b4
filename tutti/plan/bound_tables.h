// Tables of bound.cpp: layers and ranks, priced once for all layouts that share them.
#pragma once

#include <array>
#include <vector>

#include "tutti/plan/bound.h"

namespace tutti::plan {

// Kinds of layers, in the order in which they are priced.
enum Kind : size_t {
  kEmbedding,
  kTail,
  kHead,
  kPrediction,
  kBlocks,  // first of the model, first of a stage, any other; then the same for routed layers
  kKinds = kBlocks + 6
};

struct LayoutBounds::Layers {
  std::array<PassSeconds, kKinds> kind;  // a layer; blocked and transfer unused
  double model_seconds = 0;              // all layers once, each the cheapest kind of block
  double block_bytes[2] = {};            // kept per in-flight dense or routed layer
  double working_bytes[2] = {};          // of a recomputed layer
  double embedding_bytes = 0;            // per in-flight micro-batch on the first stage
  double last_bytes = 0;                 // head and loss on the last stage
  double common_bytes = 0;               // workspace and batch, on every stage
};

struct LayoutBounds::Ranks {
  struct Run {
    size_t kind = 0;
    double repeats = 0;
  };
  std::vector<std::vector<Run>> stages;  // per virtual stage

  struct Traffic {  // per ZeRO stage
    bool priced = false;
    std::vector<double> chunk_gather;  // per virtual stage
    std::vector<double> chunk_reduce;
    std::vector<double> gather;  // per pipeline rank
    std::vector<double> reduce;
    double update = 0;
    double tied = 0;
  };
  std::array<Traffic, 4> traffic;

  struct Memory {  // of a pipeline rank that may be the fullest
    int64_t stage = 0;
    double least_dense = 0;  // layers of the smallest chunk
    double least_routed = 0;
    bool dense = false;  // whether it has any
    bool routed = false;
    std::array<double, 4> bytes{};  // per ZeRO stage; 0: not computed
  };
  std::vector<Memory> memory;
};

}  // namespace tutti::plan
