// Published measurements, one per row of a CSV file, and the runs they describe.
//
// Columns: source, model, params_b, layers, hidden, heads, kv_heads, ffn, vocab, seq, global_batch,
// micro_batch (sequences), tp, pp, vpp, cp, dp, ep, zero, gpus, gpu_type, precision, recompute,
// metric, value, note; further ones are ignored, absent ones are empty. Optional columns `system`,
// `software` and `profile` say what the catalog's sources (kind `source`) say otherwise.
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

// Who measured with what: an entry of kind source, matched by the beginning of the row's source.
// Texts prefix, software, profile, systems; where wanted
//   notes       separated by ';': the entry is of rows whose note begins with one of these (a
//   source
//               that measured several programs has an entry for each)
//   gpus        separated by ',': the entry is of these GPU types alone
//   flops       square: its FLOPs count the whole square of attention; causal
//   recompute, recomputed_layers, precision, adapter_profile
// quantities first_dense_count, virtual_stages_count, micro_batches_per_stage_count and any of
// constant_table(), such as dp_overlap_ratio (0 where gradients are not overlapped): what a release
// is known to do without rows of its own.
struct MeasurementSource {
  std::string prefix;
  std::vector<std::string> notes;  // empty: of any row
  std::vector<std::string> gpus;   // empty: of any GPU type
  std::string software;
  std::string profile;
  std::string adapter_profile;  // of rows that train adapters; else as `profile`
  std::string precision;        // of rows that leave it empty
  std::string flops;            // "square" or "causal"; empty: as the row says
  // "GPU type=system" pairs; a row's gpu_type selects the system.
  std::vector<std::pair<std::string, std::string>> systems;
  std::string recompute;  // of rows that leave it empty
  // GPU types whose runs recompute so many layers in full.
  std::vector<std::pair<std::string, int64_t>> recomputed_layers;
  int64_t dense_layers = -1;   // first layers without experts, of cut-down models; -1: as is
  int64_t virtual_stages = 0;  // of rows that leave it empty; 0: to be searched
  // Into how many times pp a batch is cut, of rows with pp > 1 that leave micro_batch empty; 0: to
  // be searched.
  int64_t micro_batches_per_stage = 0;
  std::map<Constant, double> stated;  // constants that follow from how it says it ran
  std::string origin;                 // path it was read from
  size_t folder = 0;                  // number of the catalog folder it was read from
};
// An entry of a later folder replaces one of the same name. Throws as catalog::load_kind, and usage
// for a text or a quantity that a source does not have.
std::vector<MeasurementSource> load_sources(FileSystem& files,
                                            const std::vector<std::string>& folders);
// Of those whose prefix `name` begins with, the ones of the last folder (a user's stand before
// ours, however general they are); of these the one with the longest prefix, of equal ones one that
// names `note` or `gpu`, best both, of these the last; nullptr: none.
const MeasurementSource* source_of(const std::vector<MeasurementSource>& sources,
                                   const std::string& name, const std::string& note = {},
                                   const std::string& gpu = {});
// The system that the source says for that GPU; else, of the chip that the GPU is an alias of, one
// that the source uses, or the first by name. Throws unsupported where no chip is known by it.
std::string system_of(const MeasurementSource* source, const std::string& gpu,
                      const catalog::Catalog& catalog);
// As tables write it, in any case: bf16 and fp16, fp8 and its kinds (FP8-CS), MXFP8, NVFP4. Throws
// unsupported for others.
spec::Precision published_precision(const std::string& text);
// The same of a row on `chip`; empty leaves 16 bits on a chip that has no products in fewer, which
// `inferred` then says, and throws unsupported on others.
spec::Precision published_precision(const std::string& text, const catalog::Chip& chip,
                                    std::string& inferred);

// Throws unsupported where nothing can be compared with it: absent (0), not finite, zero or below.
void check_measured(double value);

struct Measurement {
  std::string source;
  std::string model;
  std::string metric;
  double value = 0;
  std::string note;
  int line = 0;
  std::string unpredictable;  // why not, when it cannot be; the rest is then not filled

  std::string system;
  std::string software;
  spec::Profile profile;
  std::map<Constant, double> stated;
  bool square_flops = false;      // published FLOPs count the whole square of attention
  bool recompute_stated = true;   // by the row or its source
  std::string inferred;           // what a rule filled in, for people; empty: nothing
  spec::Recipe recipe;            // resolved; unknown sizes have their defaults
  std::vector<std::string> free;  // "micro_batch", "vpp", "layout": not published, to be searched
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
