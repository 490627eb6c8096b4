#include "tutti/plan/layouts.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <numeric>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/spec/program/narrow.h"
#include "tutti/spec/recipe/names.h"

namespace tutti::plan {
namespace {

using spec::Mesh;
using spec::Pipeline;
using spec::RecomputeMode;

constexpr size_t kZeroStages = 4;

std::vector<int64_t> divisors(int64_t n) {
  std::vector<int64_t> out;
  for (int64_t d = 1; d * d <= n; ++d) {
    if (n % d != 0) continue;
    out.push_back(d);
    if (d != n / d) out.push_back(n / d);
  }
  std::sort(out.begin(), out.end());
  return out;
}

// The divisors of n, or the kept value if it divides n.
std::vector<int64_t> axis_values(int64_t n, bool kept, int64_t value) {
  if (!kept) return divisors(n);
  if (n % value == 0) return {value};
  return {};
}

std::string schedule_name(const Mesh& mesh) {
  if (mesh.vpp > 1) return "interleaved";
  return spec::name_of(spec::kPipelineNames, mesh.pipeline);
}

// The rules of spec::validate (recipe.cpp), without messages.
bool tensor_parallel_divides(const spec::Recipe& recipe, int64_t tp, int64_t cp) {
  const spec::ModelConfig& model = recipe.model;
  const bool kv = model.kv_heads % tp == 0 || tp % model.kv_heads == 0;
  const bool experts = model.moe.experts == 0 || model.moe.expert_ffn % tp == 0;
  const int64_t pieces = (cp > 1 ? 2 * cp : 1) * tp;
  return model.heads % tp == 0 && kv && model.ffn % tp == 0 && experts &&
         recipe.batch.sequence % pieces == 0;
}

std::vector<ScheduleChoice> all_schedules(const LayoutSpace& space, int64_t pp) {
  const Mesh& own = space.recipe->parallel;
  const Kept& kept = space.kept;
  std::vector<ScheduleChoice> out;
  const auto add = [&](Pipeline pipeline, int64_t vpp) {
    const bool same_schedule = pipeline == own.pipeline && (vpp > 1) == (own.vpp > 1);
    if (kept.schedule && !same_schedule) return;
    if (kept.vpp && vpp != own.vpp) return;
    out.push_back({pipeline, vpp});
  };
  if (kept.schedule && own.pipeline == Pipeline::gpipe) add(Pipeline::gpipe, 1);
  add(Pipeline::one_f_one_b, 1);
  if (pp == 1) return out;
  add(Pipeline::zero_bubble, 1);
  for (int64_t vpp = 2; vpp * pp <= space.recipe->model.layers; ++vpp) {
    add(Pipeline::one_f_one_b, vpp);
  }
  return out;
}

std::vector<spec::Recompute> recomputes_of(const LayoutSpace& space) {
  if (space.kept.recompute) return {space.recipe->recompute};
  return {
      {RecomputeMode::none, 0, 0}, {RecomputeMode::selective, 0, 0}, {RecomputeMode::full, 0, 0}};
}

}  // namespace

Layout layout_of(const spec::Recipe& recipe) {
  return {recipe.parallel, recipe.batch.micro, recipe.recompute, recipe.precision};
}

void apply(const Layout& layout, spec::Recipe& recipe) {
  recipe.parallel = layout.mesh;
  recipe.batch.micro = layout.micro;
  recipe.recompute = layout.recompute;
  recipe.precision = layout.precision;
}

std::string layout_text(const Layout& layout) {
  const Mesh& mesh = layout.mesh;
  std::string text;
  const auto part = [&](const char* name, int64_t size) {
    if (size > 1) text += fmt::format("{} {}, ", name, size);
  };
  part("tp", mesh.tp);
  part("cp", mesh.cp);
  part("ep", mesh.ep);
  if (mesh.vpp > 1) {
    text += fmt::format("pp {} x {}, ", mesh.pp, mesh.vpp);
  } else {
    part("pp", mesh.pp);
  }
  part("dp", mesh.dp);
  if (mesh.zero > 0) text += fmt::format("zero {}, ", mesh.zero);
  text += fmt::format("micro-batch {}, ", layout.micro);
  if (mesh.pp > 1) text += schedule_name(mesh) + ", ";
  if (layout.recompute.mode != RecomputeMode::none) {
    text += spec::name_of(spec::kRecomputeNames, layout.recompute.mode) + " recomputation, ";
  }
  return text + spec::name_of(spec::kPrecisionNames, layout.precision);
}

std::string layout_yaml(const Layout& layout, const spec::BatchConfig& batch) {
  const Mesh& mesh = layout.mesh;
  std::string text =
      fmt::format("precision: {}\n", spec::name_of(spec::kPrecisionNames, layout.precision));
  const spec::Recompute& recompute = layout.recompute;
  const std::string& mode = spec::name_of(spec::kRecomputeNames, recompute.mode);
  if (recompute.parts == 0 && recompute.layers == 0) {
    text += fmt::format("recompute: {}\n", mode);
  } else {
    text += fmt::format("recompute:\n  mode: {}\n", mode);
    if (recompute.parts != 0) {
      text += fmt::format("  parts: [{}]\n", spec::part_names(recompute.parts, ", "));
    }
    if (recompute.layers != 0) text += fmt::format("  layers: {}\n", recompute.layers);
  }
  text += fmt::format("batch:\n  global: {}\n  micro: {}\n  sequence: {}\n", batch.global,
                      layout.micro, batch.sequence);
  return text + fmt::format(
                    "parallel:\n  dp: {}\n  tp: {}\n  pp: {}\n  vpp: {}\n  cp: {}\n  ep: {}\n"
                    "  zero: {}\n  schedule: {}\n",
                    mesh.dp, mesh.tp, mesh.pp, mesh.vpp, mesh.cp, mesh.ep, mesh.zero,
                    schedule_name(mesh));
}

std::vector<std::string> layout_overrides(const Layout& layout) {
  const Mesh& mesh = layout.mesh;
  std::vector<std::string> out = {
      fmt::format("precision={}", spec::name_of(spec::kPrecisionNames, layout.precision)),
      fmt::format("batch.micro={}", layout.micro),
      fmt::format("parallel.dp={}", mesh.dp),
      fmt::format("parallel.tp={}", mesh.tp),
      fmt::format("parallel.pp={}", mesh.pp),
      fmt::format("parallel.vpp={}", mesh.vpp),
      fmt::format("parallel.cp={}", mesh.cp),
      fmt::format("parallel.ep={}", mesh.ep),
      fmt::format("parallel.zero={}", mesh.zero),
      "parallel.schedule=" + schedule_name(mesh)};
  if (layout.recompute.parts == 0 && layout.recompute.layers == 0) {
    out.push_back("recompute=" + spec::name_of(spec::kRecomputeNames, layout.recompute.mode));
  }
  return out;
}

const std::vector<std::string>& axis_names() {
  static const std::vector<std::string> names = {
      "tp", "pp", "vpp", "cp", "ep", "zero", "micro", "recompute", "schedule", "layout"};
  return names;
}

void keep_axis(Kept& kept, const std::string& axis) {
  if (axis == "layout") {
    kept = {true, true, true, true, true, true, true, true, true};
    return;
  }
  const std::pair<const char*, bool*> axes[] = {{"tp", &kept.tp},
                                                {"pp", &kept.pp},
                                                {"vpp", &kept.vpp},
                                                {"cp", &kept.cp},
                                                {"ep", &kept.ep},
                                                {"zero", &kept.zero},
                                                {"micro", &kept.micro},
                                                {"recompute", &kept.recompute},
                                                {"schedule", &kept.schedule}};
  for (const auto& [name, flag] : axes) {
    if (axis == name) {
      *flag = true;
      return;
    }
  }
  fail(ErrorKind::usage, "--keep: unknown axis '{}'; accepted: {}", axis, join(axis_names(), ", "));
}

std::vector<spec::Precision> precisions_of(const catalog::Chip& chip, spec::Precision asked) {
  if (asked == spec::Precision::f32) return {asked};
  std::vector<spec::Precision> out = {spec::Precision::bf16};
  for (const auto& [name, precision] : spec::kPrecisionNames) {
    if (spec::is_narrow(precision) && catalog::product_flops(chip, precision) > 0) {
      out.push_back(precision);
    }
  }
  return out;
}

std::vector<ScheduleChoice> schedules_of(const LayoutSpace& space, const Layout& group) {
  std::vector<ScheduleChoice> out = all_schedules(space, group.mesh.pp);
  const int64_t micro_batches = space.recipe->batch.global / (group.micro * group.mesh.dp);
  if (micro_batches % group.mesh.pp != 0) {
    std::erase_if(out, [](const ScheduleChoice& choice) { return choice.vpp > 1; });
  }
  if (group.recompute.layers > 0) {
    std::erase_if(out, [&](const ScheduleChoice& choice) {
      Mesh mesh = group.mesh;
      mesh.vpp = choice.vpp;
      const int64_t most = spec::stage_layers(mesh, space.recipe->model.layers, 0).count;
      return group.recompute.layers > most;
    });
  }
  return out;
}

int64_t pipeline_zero(const spec::Profile& profile) {
  switch (profile.pipelined_zero) {
    case spec::PipelinedZero::micro_batch: return 3;
    case spec::PipelinedZero::round: return 2;
    case spec::PipelinedZero::step: return 1;
  }
  return 3;
}

std::vector<int64_t> zero_stages_of(const LayoutSpace& space, const Layout& group) {
  if (space.kept.zero) return {space.recipe->parallel.zero};
  if (spec::replicas(group.mesh) == 1) return {0};
  std::vector<int64_t> all(group.mesh.pp > 1 ? static_cast<size_t>(space.most_pipeline_zero) + 1
                                             : kZeroStages);
  std::iota(all.begin(), all.end(), 0);
  return all;
}

int64_t layouts_of(const LayoutSpace& space, const Layout& group) {
  const Kept& kept = space.kept;
  const auto zeros = static_cast<int64_t>(zero_stages_of(space, group).size());
  if (kept.schedule || kept.vpp || group.recompute.layers > 0) {
    return zeros * static_cast<int64_t>(schedules_of(space, group).size());
  }
  // 1F1B; zero-bubble; interleaved with any divisor.
  const int64_t pp = group.mesh.pp;
  if (pp == 1) return zeros;
  const int64_t micro_batches = space.recipe->batch.global / (group.micro * group.mesh.dp);
  const int64_t most = space.recipe->model.layers / pp;
  return zeros * (micro_batches % pp == 0 ? 1 + std::max<int64_t>(1, most) : 2);
}

Enumerated for_each_group(const LayoutSpace& space,
                          const std::function<void(const Layout& group)>& visit) {
  const spec::Recipe& recipe = *space.recipe;
  const Mesh& own = recipe.parallel;
  const Kept& kept = space.kept;
  const int64_t experts = recipe.model.moe.experts;
  const int64_t global = recipe.batch.global;
  const std::vector<int64_t> eps = axis_values(std::max<int64_t>(1, experts), kept.ep, own.ep);
  const std::vector<int64_t> micros = axis_values(global, kept.micro, recipe.batch.micro);
  const std::vector<spec::Recompute> recomputes = recomputes_of(space);
  const auto ways = static_cast<int64_t>(recomputes.size() * space.precisions.size());
  // Micro-batches that divide the share of each number of data-parallel ranks: few of all divisors.
  std::map<int64_t, std::vector<int64_t>> fitting;
  const auto micros_of = [&](int64_t dp) -> const std::vector<int64_t>& {
    const auto [found, added] = fitting.try_emplace(dp);
    if (added) {
      std::copy_if(micros.begin(), micros.end(), std::back_inserter(found->second),
                   [&](int64_t micro) { return global % (micro * dp) == 0; });
    }
    return found->second;
  };
  Enumerated out;
  for (const int64_t tp : axis_values(space.chips, kept.tp, own.tp)) {
    for (const int64_t cp : axis_values(space.chips / tp, kept.cp, own.cp)) {
      const bool splits = tensor_parallel_divides(recipe, tp, cp);
      for (const int64_t pp : axis_values(space.chips / (tp * cp), kept.pp, own.pp)) {
        Layout group;
        Mesh& mesh = group.mesh;
        mesh.tp = tp;
        mesh.cp = cp;
        mesh.pp = pp;
        mesh.dp = space.chips / (tp * cp * pp);
        const bool stages = pp <= recipe.model.layers;
        const auto schedules = stages ? static_cast<int64_t>(all_schedules(space, pp).size()) : 1;
        const auto zeros = static_cast<int64_t>(zero_stages_of(space, group).size());
        const int64_t leaves = ways * schedules * zeros;
        const auto inner = static_cast<int64_t>(eps.size() * micros.size());
        out.considered += inner * leaves;
        if (!splits || !stages || global % mesh.dp != 0) {
          out.indivisible += inner * leaves;
          continue;
        }
        for (const int64_t ep : eps) {
          if ((mesh.dp * cp) % ep != 0) {
            out.indivisible += static_cast<int64_t>(micros.size()) * leaves;
            continue;
          }
          mesh.ep = ep;
          const std::vector<int64_t>& dividing = micros_of(mesh.dp);
          out.indivisible += static_cast<int64_t>(micros.size() - dividing.size()) * leaves;
          for (const int64_t micro : dividing) {
            group.micro = micro;
            const int64_t allowed = layouts_of(space, group) / zeros;
            out.indivisible += (schedules - allowed) * zeros * ways;
            for (const spec::Precision precision : space.precisions) {
              group.precision = precision;
              for (const spec::Recompute& recompute : recomputes) {
                group.recompute = recompute;
                visit(group);
              }
            }
          }
        }
      }
    }
  }
  return out;
}

}  // namespace tutti::plan
