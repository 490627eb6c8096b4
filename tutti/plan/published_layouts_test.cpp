// Every published layout ran, so every one fits in the described memory of its chip: the shipped
// table of MLPerf results, and other published measurements where they are at hand.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <iterator>
#include <limits>

#include "tutti/plan/plan_rows_test_support.h"
#include "tutti/plan/unpublished.h"

namespace tutti::plan {
namespace {

struct Fits {
  int fitting = 0;
  std::vector<std::string> others;
  std::vector<std::string> known;  // of kKnown
};

// What ran with options that no row names and that are not described yet.
struct Known {
  const char* source;
  const char* model;
  const char* why;
};
constexpr Known kKnown[] = {
    // NVIDIA-NeMo/Megatron-Bridge v0.4.1, scripts/performance/configs
    {"Megatron-Bridge", "DeepSeekV3", "recompute_modules: mla_up_proj, mlp, moe_act"},
    {"Megatron-Bridge", "LLAMA3_70B", "cpu_offloading_num_layers: 20 or 40"},
    {"Megatron-Bridge", "GPT OSS 120B", "recompute_modules: layernorm, moe_act"},
    // in MXFP8: gathered weights in 8 bits, in the buffer of the gradients
    {"Megatron-Bridge", "LLAMA3.1_405B", "reuse_grad_buf_for_mxfp8_param_ag"},
    {"Megatron-Bridge", "Qwen3_30B_a3B", "reuse_grad_buf_for_mxfp8_param_ag"},
    // DeepSpeed gathers by modules, at most stage3_max_live_parameters of them
    {"Megatron SC21 Table 2", "gpt-530B", "ZeRO-3 of DeepSpeed"},
    // torchtitan/parallelisms/parallelize_llama.py: selective by operations keeps every other mm
    {"torchtitan", "llama3-8B", "selective recomputation of every other product"},
};

bool is_known(const Measurement& row) {
  return std::any_of(std::begin(kKnown), std::end(kKnown), [&](const Known& known) {
    return row.source.rfind(known.source, 0) == 0 && row.model == known.model;
  });
}

Fits fits_of(const std::string& path, const Constants& constants) {
  const CsvTable table = parse_csv(read_file(posix_file_system(), path), path);
  const auto read = is_mlperf_table(table) ? read_mlperf_results : read_measurements;
  const std::vector<Measurement> rows =
      read(table, load_sources(posix_file_system(), {catalog_folder()}), shipped_catalog(),
           std::string(TUTTI_SOURCE_DIR) + "/recipes/models");
  Fits out;
  for (const Measurement& row : rows) {
    if (!row.unpredictable.empty()) continue;
    // Computed by a paper's formulas, not run.
    const bool computed =
        row.metric.rfind("activation_mem", 0) == 0 || row.metric.rfind("param_opt_mem", 0) == 0;
    if (computed) continue;
    const catalog::System& system = shipped_catalog().system(row.system);
    double least = std::numeric_limits<double>::infinity();
    for (const spec::Recipe& recipe : unpublished_choices(row)) {
      least = std::min(least, predict_memory(recipe, row.profile, system, constants).bytes);
    }
    if (least <= system.chip.memory_bytes) {
      ++out.fitting;
    } else {
      const spec::Mesh& mesh = row.recipe.parallel;
      (is_known(row) ? out.known : out.others)
          .push_back(fmt::format(
              "{}:{}: {} ({}): {:.1f} of {:.1f} GB, tp {} pp {} cp {} dp {} zero {} micro {}", path,
              row.line, row.model, row.source, least / 1e9, system.chip.memory_bytes / 1e9, mesh.tp,
              mesh.pp, mesh.cp, mesh.dp, mesh.zero, row.recipe.batch.micro));
    }
  }
  return out;
}

void expect_all_fit(const std::string& path, int at_least) {
  const Fits fits = fits_of(path, assumed_constants());
  EXPECT_GE(fits.fitting, at_least);
  for (const std::string& other : fits.others) ADD_FAILURE() << other;
  if (!fits.known.empty()) {
    std::printf("%s: %zu rows with options that are not described\n", path.c_str(),
                fits.known.size());
  }
}

TEST(PublishedLayouts, MlperfSubmissionsFit) {
  expect_all_fit(catalog_folder() + "/published/mlperf_training.csv", 230);
}

TEST(PublishedLayouts, OtherMeasurementsFit) {
  for (const char* name : {"steps_fit.csv", "steps_fit_2.csv", "mlperf_fit.csv"}) {
    if (!posix_file_system().exists(shared_validation(name))) {
      GTEST_SKIP() << "skipped: no shared data";
    }
    expect_all_fit(shared_validation(name), 50);
  }
}

}  // namespace
}  // namespace tutti::plan
