// What a prediction without a software leaves open: known software of the chip generation may send
// collectives out of a node in another way, which decides steps that communicate much between
// nodes.
//
// The sets of a generation state it (node_rail_ratio, rail_ratio: collectives.h). The step is
// predicted with each way in turn, and the interval reaches to the slowest and the fastest: GPT-3
// 175B by ZeRO-3 on 384 A100s takes 1.4 times as long where a collective leaves a node by one
// adapter, on 1,536 four times.
#pragma once

#include <string>
#include <vector>

#include "tutti/plan/predict.h"

namespace tutti::plan {

// How the software of a set sends collectives out of a node.
struct NodeExit {
  std::string software;
  double rail_ratio = 1;
  double node_rail_ratio = 1;
};

// Those of the software in `sets` on the generation of `constants`, each once; empty if `constants`
// are of a software (Nearness other than generation).
std::vector<NodeExit> open_exits(const std::vector<Constants>& sets, const Constants& constants);

// How much the step may take longer or shorter, as logarithms of its time, both at least 0.
struct SoftwareSpread {
  double longer = 0;
  double shorter = 0;
  std::string longest;  // the software
};
SoftwareSpread software_spread(const spec::Recipe& recipe, const spec::Profile& profile,
                               const catalog::System& system, const Constants& constants,
                               const std::vector<NodeExit>& exits, PipelineSimulator& simulator);

}  // namespace tutti::plan
