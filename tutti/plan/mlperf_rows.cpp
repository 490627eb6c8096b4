#include "tutti/plan/mlperf_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::plan {
namespace {

// The model of a benchmark and its evaluation interval (training_rules.adoc of
// mlcommons/training_policies; catalog/benchmarks).
struct Task {
  const char* benchmark;
  const char* preset;
  int64_t vocabulary;  // of its tokenizer; 0: the preset's
  int64_t sequence;
  int64_t lora_rank;
  int64_t evaluation_samples;  // full sequences
  double interval_samples;
  double skipped_share;  // skipped first evaluations: share * batch + 2, if above 0
};
constexpr Task kTasks[] = {
    // 24,567 examples are 11,590,004 tokens: 5,659 sequences when packed.
    {"gpt3", "gpt3-175b", 0, 2048, 0, 5659, 24576, 0},
    {"llama31_405b", "llama3.1-405b", 32000, 8192, 0, 5760, 46080, 0},
    {"llama31_8b", "llama3.1-8b", 0, 8192, 0, 1024, 12288, 0},
    {"llama2_70b_lora", "llama2-70b", 0, 8192, 16, 173, 384, 0.125},
};

int64_t whole(const CsvTable& table, size_t row, std::string_view name) {
  return static_cast<int64_t>(table.number(row, name, 0));
}

// Minutes before scaling: column raw_minutes, or "... (raw 10.94 min)" in the source.
double raw_minutes(const CsvTable& table, size_t row) {
  const std::string& source = table.field(row, "source");
  const size_t at = source.find("(raw ");
  if (at != std::string::npos) return std::strtod(source.c_str() + at + 5, nullptr);
  return table.number(row, "raw_minutes", table.number(row, "minutes", 0));
}

// A row with the same benchmark, round and machine that has a layout.
std::optional<size_t> row_with_layout(const CsvTable& table, size_t row) {
  if (!table.field(row, "tp").empty()) return row;
  for (size_t other = 0; other < table.rows.size(); ++other) {
    if (table.field(other, "tp").empty()) continue;
    const auto same = [&](const char* column) {
      return table.field(other, column) == table.field(row, column);
    };
    if (same("benchmark") && same("round") && same("accelerator") && same("num_accelerators") &&
        same("global_batch")) {
      return other;
    }
  }
  return std::nullopt;
}

// For rows without a precision: the one that all others of the benchmark, round and accelerator
// have.
std::string usual_precision(const CsvTable& table, size_t row) {
  std::string usual;
  for (size_t other = 0; other < table.rows.size(); ++other) {
    const auto same = [&](const char* column) {
      return table.field(other, column) == table.field(row, column);
    };
    const std::string& stated = table.field(other, "precision");
    if (stated.empty() || !same("benchmark") || !same("round") || !same("accelerator")) continue;
    if (!usual.empty() && usual != stated) return {};
    usual = stated;
  }
  return usual;
}

void describe_row(const CsvTable& table, size_t row, const std::vector<MeasurementSource>& sources,
                  const catalog::Catalog& catalog, const std::string& models_folder,
                  Measurement& out) {
  const std::string& benchmark = table.field(row, "benchmark");
  const std::string& accelerator = table.field(row, "accelerator");
  const Task* task = std::find_if(std::begin(kTasks), std::end(kTasks),
                                  [&](const Task& one) { return benchmark == one.benchmark; });
  if (task == std::end(kTasks)) {
    fail(ErrorKind::unsupported, "benchmark {} has no model here", benchmark);
  }
  check_measured(out.value);
  const MeasurementSource* source = source_of(sources, table.field(row, "source"), {}, accelerator);
  out.system = system_of(source, accelerator, catalog);
  const catalog::Chip& chip = catalog.system(out.system).chip;
  if (table.field(row, "system").find("deepspeed") != std::string::npos) {
    fail(ErrorKind::unsupported, "runs DeepSpeed in a layout that is not published");
  }
  const bool tunes = task->lora_rank > 0;
  std::string profile = tunes ? "nemo-lora" : "megatron-te";
  if (source != nullptr) {
    out.software = source->software;
    out.stated = source->stated;
    profile = tunes ? source->adapter_profile : source->profile;
  }
  out.profile = spec::find_profile(profile);
  const auto precision = [&](size_t from) {
    std::string text = table.field(from, "precision");
    if (text.empty() && chip.fp8_flops > 0) {
      text = usual_precision(table, from);
      if (text.empty() && source != nullptr) text = source->precision;
      if (!text.empty()) out.inferred = text + ", as others of the round on " + chip.name;
    }
    const spec::Precision usual = published_precision(text, chip, out.inferred);
    if (!out.inferred.empty() && catalog::product_flops(chip, usual) <= 0) {
      fail(ErrorKind::unsupported, "its precision is not published; {} lacks the {} of the others",
           chip.name, text);
    }
    return usual;
  };

  spec::Recipe& recipe = out.recipe;
  recipe.model = spec::load_model_preset(task->preset, models_folder);
  if (task->vocabulary > 0) recipe.model.vocabulary = task->vocabulary;
  recipe.model.context = std::max(recipe.model.context, task->sequence);
  recipe.lora.rank = task->lora_rank;
  recipe.lora.dropout = task->lora_rank > 0 ? 0.1 : 0;
  recipe.batch.sequence = task->sequence;
  recipe.batch.global = whole(table, row, "global_batch");
  recipe.batch.micro = 1;
  spec::Mesh& mesh = recipe.parallel;
  mesh.zero = 1;
  const int64_t chips = whole(table, row, "num_accelerators");
  const std::optional<size_t> known = row_with_layout(table, row);
  if (known) {
    recipe.batch.micro = whole(table, *known, "micro_batch");
    mesh.tp = whole(table, *known, "tp");
    mesh.pp = whole(table, *known, "pp");
    mesh.cp = whole(table, *known, "cp");
    mesh.dp = whole(table, *known, "dp");
    recipe.precision = precision(*known);
    if (mesh.pp > 1) out.free.emplace_back("vpp");
  } else {
    mesh.dp = chips;
    recipe.precision = precision(row);
    out.free.emplace_back("layout");
  }
  catalog::check_precision(chip, recipe.precision);
  if (mesh.world() != chips) {
    fail(ErrorKind::unsupported, "tp {} x pp {} x cp {} x dp {} is not {} accelerators", mesh.tp,
         mesh.pp, mesh.cp, mesh.dp, chips);
  }
  if (source != nullptr) {
    for (const auto& [gpu, layers] : source->recomputed_layers) {
      if (gpu != accelerator) continue;
      recipe.recompute.mode = spec::RecomputeMode::full;
      recipe.recompute.layers = layers;
    }
  }
  recipe.train.steps = 1000;
  spec::resolve(recipe);
  if (known) spec::validate(recipe);

  const double samples = table.number(row, "samples_to_target", 0);
  if (!std::isfinite(samples) || samples <= 0) {
    fail(ErrorKind::unsupported, "the samples to the target are not published");
  }
  const double batch = static_cast<double>(recipe.batch.global);
  double evaluations = std::round(samples / task->interval_samples);
  if (task->skipped_share > 0) evaluations -= std::floor(task->skipped_share * batch + 2);
  out.run.steps = samples / batch;
  out.run.evaluations = std::max(1.0, evaluations);
  out.run.evaluation_samples = task->evaluation_samples;
}

}  // namespace

bool is_mlperf_table(const CsvTable& table) {
  return table.column("benchmark") >= 0 && table.column("samples_to_target") >= 0 &&
         table.column("num_accelerators") >= 0 && table.column("minutes") >= 0;
}

std::vector<Measurement> read_mlperf_results(const CsvTable& table,
                                             const std::vector<MeasurementSource>& sources,
                                             const catalog::Catalog& catalog,
                                             const std::string& models_folder) {
  std::vector<Measurement> out;
  for (size_t row = 0; row < table.rows.size(); ++row) {
    Measurement measurement;
    const std::string& benchmark = table.field(row, "benchmark");
    measurement.source = fmt::format("MLPerf {} ({})", benchmark, table.field(row, "round"));
    measurement.model = fmt::format("{} on {} {}", benchmark, table.field(row, "num_accelerators"),
                                    table.field(row, "accelerator"));
    measurement.metric = "run_minutes";
    measurement.note = table.field(row, "source");
    measurement.line = table.lines[row];
    try {
      measurement.value = raw_minutes(table, row);
      describe_row(table, row, sources, catalog, models_folder, measurement);
    } catch (const Error& error) {
      measurement.unpredictable = error.what();
    }
    out.push_back(std::move(measurement));
  }
  return out;
}

}  // namespace tutti::plan
