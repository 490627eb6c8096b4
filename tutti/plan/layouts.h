// Every layout of a recipe on a number of chips: tp x cp x pp x dp whose product is that number,
// expert parallelism, micro-batch, virtual stages and schedule, ZeRO stage, recomputation and
// precision. Exactly the layouts that spec::validate accepts are enumerated.
//
// A group is a layout without schedule and ZeRO stage: everything that the passes of a layer depend
// on.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tutti/catalog/chips.h"
#include "tutti/spec/program/profile.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::plan {

struct Layout {
  spec::Mesh mesh;
  int64_t micro = 1;
  spec::Recompute recompute;
  spec::Precision precision = spec::Precision::bf16;
  bool operator==(const Layout&) const = default;
};

Layout layout_of(const spec::Recipe& recipe);
void apply(const Layout& layout, spec::Recipe& recipe);

// "tp 8, pp 4 x 3, dp 32, zero 1, micro-batch 2, interleaved, full recomputation, bf16"
std::string layout_text(const Layout& layout);

// The keys of a recipe that define the layout, as YAML to replace those of the recipe.
std::string layout_yaml(const Layout& layout, const spec::BatchConfig& batch);
// The same as overrides: {"parallel.tp=8", ...}.
std::vector<std::string> layout_overrides(const Layout& layout);

// Axes that keep the recipe's values; the others take every value that divides. "layout": all
// except dp, for scaling.
struct Kept {
  bool tp = false, pp = false, vpp = false, cp = false, ep = false, zero = false;
  bool micro = false, recompute = false, schedule = false;
};
const std::vector<std::string>& axis_names();  // accepted by keep_axis
// Throws usage naming the known axes.
void keep_axis(Kept& kept, const std::string& axis);

struct LayoutSpace {
  const spec::Recipe* recipe = nullptr;  // resolved: model, global batch, sequence
  int64_t chips = 1;
  Kept kept;
  std::vector<spec::Precision> precisions;
  // The highest ZeRO stage of pipelines: higher ones change neither time nor memory
  // (pipeline_zero).
  int64_t most_pipeline_zero = 3;
};

// The highest ZeRO stage by which pipelines of `profile` hold and move less (PipelinedZero).
int64_t pipeline_zero(const spec::Profile& profile);

// Precisions of `chip`, the narrowest last: f32 only if the recipe requests it.
std::vector<spec::Precision> precisions_of(const catalog::Chip& chip, spec::Precision asked);

struct ScheduleChoice {
  spec::Pipeline pipeline = spec::Pipeline::one_f_one_b;
  int64_t vpp = 1;
};

// Layouts that were skipped because sizes do not divide, counted as layouts.
struct Enumerated {
  int64_t considered = 0;
  int64_t indivisible = 0;
};

// Calls `visit` with every group; mesh.vpp, pipeline and zero of its layout are undefined yet.
// Large axes come first, so groups with the same mesh are consecutive, with ascending
// micro-batches.
Enumerated for_each_group(const LayoutSpace& space,
                          const std::function<void(const Layout& group)>& visit);

// The schedules that a group's micro-batches allow, and its ZeRO stages. Their product is its
// layouts.
std::vector<ScheduleChoice> schedules_of(const LayoutSpace& space, const Layout& group);
std::vector<int64_t> zero_stages_of(const LayoutSpace& space, const Layout& group);
int64_t layouts_of(const LayoutSpace& space, const Layout& group);  // their number

}  // namespace tutti::plan
