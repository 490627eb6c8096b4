// The names that enumerations have in recipes, shared by reader and writer.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "tutti/base/check.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::spec {

template <typename Enum>
using Names = std::vector<std::pair<std::string, Enum>>;

inline const Names<Norm> kNormNames = {{"layer", Norm::layer}, {"rms", Norm::rms}};
inline const Names<Activation> kActivationNames = {{"gelu", Activation::gelu},
                                                   {"swiglu", Activation::swiglu},
                                                   {"geglu", Activation::geglu},
                                                   {"clamped-swiglu", Activation::clamped_swiglu}};
inline const Names<Positions> kPositionsNames = {{"learned", Positions::learned},
                                                 {"rope", Positions::rope}};
inline const Names<Attention> kAttentionNames = {{"grouped", Attention::grouped},
                                                 {"latent", Attention::latent}};
inline const Names<NormPlacement> kNormPlacementNames = {{"before", NormPlacement::before},
                                                         {"both", NormPlacement::both},
                                                         {"after", NormPlacement::after}};
inline const Names<QueryKeyNorm> kQueryKeyNormNames = {
    {"none", QueryKeyNorm::none}, {"head", QueryKeyNorm::head}, {"whole", QueryKeyNorm::whole}};
inline const Names<RouterScores> kRouterScoresNames = {{"softmax", RouterScores::softmax},
                                                       {"sigmoid", RouterScores::sigmoid}};
inline const Names<RopeScalingKind> kRopeScalingNames = {{"llama3", RopeScalingKind::llama3},
                                                         {"linear", RopeScalingKind::linear},
                                                         {"yarn", RopeScalingKind::yarn}};
inline const Names<Precision> kPrecisionNames = {{"f32", Precision::f32},
                                                 {"bf16", Precision::bf16},
                                                 {"fp8", Precision::fp8},
                                                 {"mxfp8", Precision::mxfp8},
                                                 {"fp4", Precision::fp4}};
inline const Names<std::string> kDeviceNames = {{"cpu", "cpu"}, {"cuda", "cuda"}};
inline const Names<Master> kMasterNames = {{"f32", Master::f32}, {"none", Master::none}};
inline const Names<ScheduleKind> kScheduleNames = {{"constant", ScheduleKind::constant},
                                                   {"linear", ScheduleKind::linear},
                                                   {"cosine", ScheduleKind::cosine},
                                                   {"wsd", ScheduleKind::wsd}};
inline const Names<WarmupForm> kWarmupNames = {{"inclusive", WarmupForm::inclusive},
                                               {"from-zero", WarmupForm::from_zero},
                                               {"between", WarmupForm::between}};
inline const Names<RecomputeMode> kRecomputeNames = {{"none", RecomputeMode::none},
                                                     {"selective", RecomputeMode::selective},
                                                     {"full", RecomputeMode::full}};
inline const Names<Parts> kPartNames = {{"norms", kPartNorms},
                                        {"attention", kPartAttention},
                                        {"core", kPartCore},
                                        {"mlp", kPartMlp},
                                        {"activation", kPartActivation}};
inline const Names<Packing> kPackingNames = {{"none", Packing::none},
                                             {"documents", Packing::documents}};
// "interleaved" is 1f1b with several virtual stages per rank.
inline const Names<Pipeline> kPipelineNames = {{"1f1b", Pipeline::one_f_one_b},
                                               {"interleaved", Pipeline::one_f_one_b},
                                               {"zero-bubble", Pipeline::zero_bubble},
                                               {"gpipe", Pipeline::gpipe}};

template <typename Enum>
const std::string& name_of(const Names<Enum>& names, Enum value) {
  for (const auto& [name, candidate] : names) {
    if (candidate == value) return name;
  }
  check_failed(__FILE__, __LINE__, "named enumerator", "");
}

inline std::string part_names(Parts parts, const char* separator) {
  std::string text;
  for (const auto& [name, part] : kPartNames) {
    if ((parts & part) != 0) text += (text.empty() ? "" : separator) + name;
  }
  return text;
}

}  // namespace tutti::spec
