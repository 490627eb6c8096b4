// Published measurements, one per row of a CSV file, and the runs they describe.
//
// Columns: source, model, params_b, layers, hidden, heads, kv_heads, ffn, vocab, seq, global_batch,
// micro_batch (sequences), tp, pp, vpp, cp, dp, ep, zero, gpus, gpu_type, precision, recompute,
// metric, value, note; further ones are ignored, absent ones are empty. The optional columns
// `system`, `software` and `profile` override the catalog's sources (kind `source`).
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutti/base/csv.h"
#include "tutti/catalog/catalog.h"
#include "tutti/plan/constants.h"
#include "tutti/spec/program/profile.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::plan {

// A source of measurements: an entry of kind source, matched by the beginning of the row's source.
// Texts prefix, software, profile, systems; optional
//   notes       separated by ';': the entry applies to rows whose note begins with one of these (a
//               source that measured several programs has an entry for each)
//   gpus        separated by ',': the entry applies to these GPU types only
//   flops       square: its FLOPs count the full square of attention; causal
//   recompute, recomputed_layers, precision, adapter_profile
// quantities first_dense_count, virtual_stages_count, micro_batches_per_stage_count and any of
// constant_table(), such as dp_overlap_ratio (0 if gradients are not overlapped): known properties
// of a release without rows of its own.
struct MeasurementSource {
  std::string prefix;
  std::vector<std::string> notes;  // empty: of any row
  std::vector<std::string> gpus;   // empty: of any GPU type
  std::string software;
  std::string profile;
  std::string adapter_profile;  // of rows that train adapters; else like `profile`
  std::string precision;        // of rows without a precision
  std::string flops;            // "square" or "causal"; empty: stated by the row
  // "GPU type=system" pairs; a row's gpu_type selects the system.
  std::vector<std::pair<std::string, std::string>> systems;
  std::string recompute;  // of rows without one
  // Number of layers that runs on a GPU type recompute in full.
  std::vector<std::pair<std::string, int64_t>> recomputed_layers;
  int64_t dense_layers =
      -1;  // first layers without experts, of cut-down models; -1: as in the model
  int64_t virtual_stages = 0;  // of rows without a number; 0: searched
  // Micro-batches of a batch as a multiple of pp, for rows with pp > 1 and an empty micro_batch; 0:
  // searched.
  int64_t micro_batches_per_stage = 0;
  std::map<Constant, double> stated;  // constants that follow from its stated settings
  std::string origin;                 // path of its file
  size_t folder = 0;                  // number of its catalog folder
};
// An entry of a later folder replaces one of the same name. Throws like catalog::load_kind, and
// usage for an unknown text or quantity of a source.
std::vector<MeasurementSource> load_sources(FileSystem& files,
                                            const std::vector<std::string>& folders);
// The source of `name`. Among entries whose prefix `name` begins with, those of the last folder win
// (so a user's entries come before ours, however general they are); among these the longest prefix,
// then an entry that matches `note` or `gpu`, best both, then the last; nullptr: none.
const MeasurementSource* source_of(const std::vector<MeasurementSource>& sources,
                                   const std::string& name, const std::string& note = {},
                                   const std::string& gpu = {});
// The source's system for that GPU; else, for the chip of that name (catalog::find_chip), a system
// that the source uses, or the first by name. Throws unsupported if no chip has that name.
std::string system_of(const MeasurementSource* source, const std::string& gpu,
                      const catalog::Catalog& catalog);
// Precisions as tables write them, in any case: bf16 and fp16, fp8 and its variants (FP8-CS),
// MXFP8, NVFP4. Throws unsupported for others.
spec::Precision published_precision(const std::string& text);
// The same for a row on `chip`; empty means 16 bits on a chip without narrower products, which is
// reported in `inferred`, and throws unsupported on other chips.
spec::Precision published_precision(const std::string& text, const catalog::Chip& chip,
                                    std::string& inferred);

// Throws unsupported if nothing can be compared with it: absent (0), not finite, zero or below.
void check_measured(double value);

struct Measurement {
  std::string source;
  std::string model;
  std::string metric;
  double value = 0;
  std::string note;
  int line = 0;
  std::string unpredictable;  // the reason if it cannot be predicted; the rest is then empty

  std::string system;
  std::string software;
  spec::Profile profile;
  std::map<Constant, double> stated;
  bool square_flops = false;      // published FLOPs count the full square of attention
  bool recompute_stated = true;   // by the row or its source
  std::string inferred;           // values that a rule filled in, for display; empty: none
  spec::Recipe recipe;            // resolved; unknown sizes have their defaults
  std::vector<std::string> free;  // "micro_batch", "vpp", "layout": unpublished, to be searched
  struct {                        // of a whole run (metric run_minutes)
    double steps = 0;
    double evaluations = 0;
    int64_t evaluation_samples = 0;
  } run;
};

std::vector<Measurement> read_measurements(const CsvTable& table,
                                           const std::vector<MeasurementSource>& sources,
                                           const catalog::Catalog& catalog,
                                           const std::string& models_folder);

}  // namespace tutti::plan
