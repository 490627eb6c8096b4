#include "tutti/plan/measurement.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/catalog/chip_names.h"
#include "tutti/catalog/known_quantities.h"
#include "tutti/catalog/load_kind.h"

namespace tutti::plan {
namespace {

int64_t whole(const CsvTable& table, size_t row, std::string_view name, int64_t fallback) {
  const double value = table.number(row, name, static_cast<double>(fallback));
  constexpr double kMost = 1e15;  // exact in a double
  if (!(std::abs(value) <= kMost) || value != std::floor(value)) {
    fail(ErrorKind::unsupported, "{}: {} is not a whole number", name, table.field(row, name));
  }
  return static_cast<int64_t>(value);
}

// Size of an axis of the mesh.
int64_t ranks_of(const CsvTable& table, size_t row, std::string_view name, int64_t fallback) {
  const int64_t ranks = whole(table, row, name, fallback);
  if (ranks < 1) fail(ErrorKind::unsupported, "{}: {} is below 1", name, ranks);
  return ranks;
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// Families whose sizes a row does not contain in full; empty: the row does. Compares letters and
// digits of the name: "GPT OSS 120B" is gpt-oss-120b.
std::string preset_of(const std::string& name) {
  static const std::vector<std::pair<std::string, std::string>> presets = {
      {"deepseekv2", "deepseek-v2"},    {"deepseek", "deepseek-v3"},
      {"mixtral", "mixtral-8x7b"},      {"qwen330ba3b", "qwen3-30b-a3b"},
      {"qwen3235b", "qwen3-235b-a22b"}, {"gptoss120b", "gpt-oss-120b"},
  };
  std::string plain;
  for (const char c : name) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) plain += c;
  }
  for (const auto& [beginning, preset] : presets) {
    if (starts_with(plain, beginning)) return preset;
  }
  return {};
}

// The family supplies the sizes that a row omits.
spec::ModelConfig model_of(const CsvTable& table, size_t row, int64_t dense_layers,
                           const std::string& models_folder) {
  const std::string name = lower(table.field(row, "model"));
  spec::ModelConfig model;
  const std::string preset = preset_of(name);
  if (!preset.empty()) {
    model = spec::load_model_preset(preset, models_folder);
  } else {
    model.layers = whole(table, row, "layers", 0);
    model.hidden = whole(table, row, "hidden", 0);
    model.heads = whole(table, row, "heads", 0);
    model.kv_heads = whole(table, row, "kv_heads", model.heads);
    model.vocabulary = whole(table, row, "vocab", 51200);
    model.ffn = whole(table, row, "ffn", 4 * model.hidden);
    if (model.layers == 0 || model.hidden == 0 || model.heads == 0) {
      fail(ErrorKind::unsupported, "layers, hidden or heads are not published");
    }
    model.head_dim = model.hidden / model.heads;
    if (starts_with(name, "llama")) {
      model.norm = spec::Norm::rms;
      model.activation = spec::Activation::swiglu;
      model.positions = spec::Positions::rope;
      model.linear_bias = false;
      model.norm_bias = false;
      model.tied_embeddings = false;
    } else if (starts_with(name, "mpt")) {
      model.linear_bias = false;
      model.norm_bias = false;
    }
  }
  model.name = name;
  model.layers = whole(table, row, "layers", model.layers);
  if (model.moe.experts > 0) {
    if (dense_layers >= 0) model.moe.first_dense_layers = dense_layers;
    model.moe.first_dense_layers = std::min(model.moe.first_dense_layers, model.layers - 1);
    model.prediction_layers = 0;
  }
  model.context = std::max(model.context, whole(table, row, "seq", 2048));
  return model;
}

spec::RecomputeMode recompute_of(const std::string& text) {
  const std::string name = lower(text);
  if (name.empty() || name == "none") return spec::RecomputeMode::none;
  if (name == "selective") return spec::RecomputeMode::selective;
  if (name == "full") return spec::RecomputeMode::full;
  fail(ErrorKind::unsupported, "recompute {} is not described; described: none, selective, full",
       text);
}

// The system that a source names for a GPU type; empty: none.
std::string mapped_system(const MeasurementSource& source, const std::string& gpu) {
  for (const auto& [type, system] : source.systems) {
    if (lower(type) == lower(gpu)) return system;
  }
  return {};
}

// A row that states both its system and its GPU.
void check_gpu(const std::string& gpu, const std::string& system, const catalog::Chip& chip,
               const catalog::Catalog& catalog) {
  const catalog::Chip* measured = catalog::find_chip(catalog, gpu);
  if (measured != nullptr && measured->name == chip.name) return;
  fail(ErrorKind::unsupported,
       "gpu_type {} is {}, not the {} of system {}; name its own system in column system", gpu,
       measured == nullptr ? "no chip of the catalog" : "chip " + measured->name, chip.name,
       system);
}

void describe(const CsvTable& table, size_t row, const std::vector<MeasurementSource>& sources,
              const catalog::Catalog& catalog, const std::string& models_folder, Measurement& out) {
  check_measured(out.value);
  const std::string& gpu = table.field(row, "gpu_type");
  const MeasurementSource* source = source_of(sources, out.source, out.note, gpu);
  out.software = table.field(row, "software");
  out.system = table.field(row, "system");
  std::string profile = table.field(row, "profile");
  std::string recompute = table.field(row, "recompute");
  if (source != nullptr) {
    if (out.software.empty()) out.software = source->software;
    if (profile.empty()) profile = source->profile;
    if (recompute.empty()) recompute = source->recompute;
    out.stated = source->stated;
  }
  if (out.system.empty()) out.system = system_of(source, gpu, catalog);
  const catalog::Chip& chip = catalog.system(out.system).chip;
  const bool stands_for = source != nullptr && out.system == mapped_system(*source, gpu);
  if (!gpu.empty() && !stands_for) check_gpu(gpu, out.system, chip, catalog);
  out.profile = spec::find_profile(profile.empty() ? "megatron-te" : profile);
  if (out.note.find("no sequence parallel") != std::string::npos) {
    out.profile.sequence_parallel = false;
  }

  spec::Recipe& recipe = out.recipe;
  recipe.model = model_of(table, row, source == nullptr ? -1 : source->dense_layers, models_folder);
  const std::string& precision = table.field(row, "precision");
  recipe.precision = published_precision(
      precision.empty() && source != nullptr ? source->precision : precision, chip, out.inferred);
  catalog::check_precision(chip, recipe.precision);
  // torchtitan's "selective" by layers recomputes one in two.
  const bool half = lower(recompute) == "selective-layer";
  recipe.recompute.mode = half ? spec::RecomputeMode::full : recompute_of(recompute);
  out.recompute_stated = !recompute.empty();
  recipe.batch.sequence = whole(table, row, "seq", 2048);
  spec::Mesh& mesh = recipe.parallel;
  mesh.tp = ranks_of(table, row, "tp", 1);
  mesh.pp = ranks_of(table, row, "pp", 1);
  mesh.vpp = ranks_of(table, row, "vpp", 1);
  mesh.cp = ranks_of(table, row, "cp", 1);
  mesh.ep = ranks_of(table, row, "ep", 1);
  const int64_t gpus = whole(table, row, "gpus", 0);
  mesh.dp = whole(table, row, "dp", gpus / (mesh.tp * mesh.pp * mesh.cp));
  mesh.zero = whole(table, row, "zero", 1);
  if (gpus == 0 || mesh.world() != gpus) {
    fail(ErrorKind::unsupported, "tp {} x pp {} x cp {} x dp {} is not {} GPUs", mesh.tp, mesh.pp,
         mesh.cp, mesh.dp, gpus);
  }
  recipe.batch.global = whole(table, row, "global_batch", 0);
  if (recipe.batch.global == 0) fail(ErrorKind::unsupported, "the global batch is not published");
  recipe.batch.micro = whole(table, row, "micro_batch", 0);
  if (recipe.batch.micro == 0 && mesh.pp > 1 && source != nullptr &&
      source->micro_batches_per_stage > 0) {
    recipe.batch.micro = std::max<int64_t>(
        1, recipe.batch.global / (mesh.dp * mesh.pp * source->micro_batches_per_stage));
  }
  if (recipe.batch.micro == 0) {
    out.free.emplace_back("micro_batch");
    recipe.batch.micro = 1;
  }
  if (table.field(row, "vpp").empty() && mesh.pp > 1) {
    if (source != nullptr && source->virtual_stages > 0) {
      mesh.vpp = source->virtual_stages;
    } else {
      out.free.emplace_back("vpp");
    }
  }
  if (half) recipe.recompute.layers = std::max<int64_t>(1, recipe.model.layers / mesh.pp / 2);
  // MFU of Megatron before 2024 counts the full square of attention.
  out.square_flops = source != nullptr && !source->flops.empty()
                         ? source->flops == "square"
                         : out.note.find("non-causal") != std::string::npos ||
                               out.software.find("2022") != std::string::npos;
  recipe.train.steps = 1000;
  spec::resolve(recipe);
  spec::validate(recipe);
}

// "GPU=value, GPU=value"; empty if the entry has no such text.
std::vector<std::pair<std::string, std::string>> pairs_of(const catalog::Entry& entry,
                                                          const std::string& name) {
  std::vector<std::pair<std::string, std::string>> pairs;
  const std::string text = entry.text_or(name, "");
  if (text.empty()) return pairs;
  for (const std::string_view pair : split(text, ',')) {
    const size_t equals = pair.find('=');
    if (equals == std::string_view::npos) {
      fail(ErrorKind::usage, "{}: texts.{}: write GPU=value, GPU=value", entry.origin, name);
    }
    pairs.emplace_back(trim(pair.substr(0, equals)), trim(pair.substr(equals + 1)));
  }
  return pairs;
}

// The items of a text of the entry, separated by `separator`; empty if it has no such text.
std::vector<std::string> list_of(const catalog::Entry& entry, const std::string& name,
                                 char separator) {
  std::vector<std::string> list;
  const std::string text = entry.text_or(name, "");
  for (const std::string_view one : split(text, separator)) {
    if (!trim(one).empty()) list.emplace_back(trim(one));
  }
  return list;
}

std::map<Constant, double> stated_constants(const catalog::Entry& entry) {
  std::vector<std::string> known = {"first_dense_count", "virtual_stages_count",
                                    "micro_batches_per_stage_count"};
  for (const ConstantInfo& info : constant_table()) known.emplace_back(info.name);
  catalog::check_quantities(entry, known);
  std::map<Constant, double> stated;
  for (size_t i = 0; i < kConstants; ++i) {
    const std::string name = constant_table()[i].name;
    if (entry.quantities.count(name) > 0) stated[static_cast<Constant>(i)] = entry.number(name);
  }
  return stated;
}

}  // namespace

void check_measured(double value) {
  if (!std::isfinite(value) || value <= 0) {
    fail(ErrorKind::unsupported, "the measured value is missing or not above zero");
  }
}

const MeasurementSource* source_of(const std::vector<MeasurementSource>& sources,
                                   const std::string& name, const std::string& note,
                                   const std::string& gpu) {
  const MeasurementSource* best = nullptr;
  const auto rank = [](const MeasurementSource& source) {
    return std::tuple(source.folder, source.prefix.size(),
                      (source.notes.empty() ? 0 : 1) + (source.gpus.empty() ? 0 : 1));
  };
  for (const MeasurementSource& source : sources) {
    const bool noted = std::any_of(source.notes.begin(), source.notes.end(),
                                   [&](const std::string& one) { return starts_with(note, one); });
    const bool of_gpu =
        std::any_of(source.gpus.begin(), source.gpus.end(),
                    [&](const std::string& one) { return lower(gpu) == lower(one); });
    if (!starts_with(name, source.prefix) || (!source.notes.empty() && !noted) ||
        (!source.gpus.empty() && !of_gpu)) {
      continue;
    }
    if (best == nullptr || rank(source) >= rank(*best)) best = &source;
  }
  return best;
}

std::string system_of(const MeasurementSource* source, const std::string& gpu,
                      const catalog::Catalog& catalog) {
  if (source != nullptr) {
    const std::string mapped = mapped_system(*source, gpu);
    if (!mapped.empty()) return mapped;
  }
  if (const catalog::Chip* chip = catalog::find_chip(catalog, gpu)) {
    const catalog::System* first = nullptr;
    for (const catalog::System& system : catalog.systems) {
      if (system.chip.name != chip->name) continue;
      // The source's own system for another name of the chip.
      if (source != nullptr &&
          std::any_of(source->systems.begin(), source->systems.end(),
                      [&](const auto& pair) { return pair.second == system.name; })) {
        return system.name;
      }
      if (first == nullptr) first = &system;
    }
    if (first != nullptr) return first->name;
    fail(ErrorKind::unsupported, "no system of the catalog has chip {}; add one ({})", chip->name,
         "--catalog FOLDER, systems/*.yaml");
  }
  if (gpu.empty()) {
    fail(ErrorKind::unsupported, "neither its system nor its GPU is given; fill column gpu_type");
  }
  fail(ErrorKind::unsupported,
       "no chip of the catalog is known as {}; add one, or an alias (--catalog FOLDER, "
       "chips/*.yaml), or a column system",
       gpu);
}

spec::Precision published_precision(const std::string& text) {
  const std::string name = lower(text);
  if (name == "bf16" || name == "fp16") return spec::Precision::bf16;
  if (name == "fp32" || name == "f32" || name == "tf32") return spec::Precision::f32;
  if (name == "fp8-mx" || name == "mxfp8") return spec::Precision::mxfp8;
  if (starts_with(name, "fp8")) return spec::Precision::fp8;
  if (name == "nvfp4" || name == "fp4") return spec::Precision::fp4;
  fail(ErrorKind::unsupported, "precision {} cannot be described yet", text);
}

spec::Precision published_precision(const std::string& text, const catalog::Chip& chip,
                                    std::string& inferred) {
  if (!text.empty()) return published_precision(text);
  if (chip.fp8_flops > 0) {
    fail(ErrorKind::unsupported,
         "its precision is not stated, and {} computes in 16 bits and in fewer; fill column "
         "precision, or texts.precision of its source",
         chip.name);
  }
  inferred = "bf16, as " + chip.name + " has no products in fewer bits";
  return spec::Precision::bf16;
}

std::vector<MeasurementSource> load_sources(FileSystem& files,
                                            const std::vector<std::string>& folders) {
  std::vector<MeasurementSource> sources;
  for (const auto& [name, entry] : catalog::load_kind(files, folders, "sources", "source")) {
    catalog::check_texts(
        entry, {"prefix", "notes", "gpus", "software", "profile", "systems", "adapter_profile",
                "precision", "recompute", "recomputed_layers", "flops"});
    MeasurementSource source;
    source.prefix = entry.text("prefix");
    source.software = entry.text("software");
    source.profile = entry.text("profile");
    source.adapter_profile = entry.text_or("adapter_profile", source.profile);
    source.precision = entry.text_or("precision", "");
    source.systems = pairs_of(entry, "systems");
    for (const auto& [gpu, layers] : pairs_of(entry, "recomputed_layers")) {
      source.recomputed_layers.emplace_back(gpu, std::atoll(layers.c_str()));
    }
    source.recompute = entry.text_or("recompute", "");
    source.flops = entry.text_or("flops", "");
    if (!source.flops.empty() && source.flops != "square" && source.flops != "causal") {
      fail(ErrorKind::usage, "{}: texts.flops: '{}' is unknown; accepted: square, causal",
           entry.origin, source.flops);
    }
    source.notes = list_of(entry, "notes", ';');
    source.gpus = list_of(entry, "gpus", ',');
    source.dense_layers = static_cast<int64_t>(entry.number_or("first_dense_count", -1));
    source.virtual_stages = static_cast<int64_t>(entry.number_or("virtual_stages_count", 0));
    source.micro_batches_per_stage =
        static_cast<int64_t>(entry.number_or("micro_batches_per_stage_count", 0));
    source.stated = stated_constants(entry);
    source.origin = entry.origin;
    for (size_t folder = 0; folder < folders.size(); ++folder) {
      if (starts_with(source.origin, join_path(folders[folder], "sources/"))) {
        source.folder = folder;
      }
    }
    sources.push_back(std::move(source));
  }
  return sources;
}

std::vector<Measurement> read_measurements(const CsvTable& table,
                                           const std::vector<MeasurementSource>& sources,
                                           const catalog::Catalog& catalog,
                                           const std::string& models_folder) {
  for (const char* column : {"source", "model", "metric", "value"}) {
    if (table.column(column) < 0) {
      fail(ErrorKind::usage, "{}: no column '{}'; a measurement needs source, model, metric, value",
           table.origin, column);
    }
  }
  std::vector<Measurement> out;
  for (size_t row = 0; row < table.rows.size(); ++row) {
    Measurement measurement;
    measurement.source = table.field(row, "source");
    measurement.model = table.field(row, "model");
    measurement.metric = table.field(row, "metric");
    measurement.note = table.field(row, "note");
    measurement.line = table.lines[row];
    try {
      measurement.value = table.number(row, "value", 0);
      describe(table, row, sources, catalog, models_folder, measurement);
    } catch (const Error& error) {
      measurement.unpredictable = error.what();
    }
    out.push_back(std::move(measurement));
  }
  return out;
}

}  // namespace tutti::plan
