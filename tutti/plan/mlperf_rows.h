// MLPerf Training results as measurements: a run of a known model and batch to its target, timed as
// a whole, so that evaluations count.
//
// A table with the columns round, benchmark, accelerator, num_accelerators, global_batch,
// micro_batch, tp, pp, cp, dp, precision, minutes, samples_to_target, source. The metric is
// run_minutes, as logged: before the scaling of results that converged faster than the reference
// (column raw_minutes, or "(raw 10.94 min)" in `source`). Virtual stages were not published and are
// searched; so is the whole layout, unless another row with the same benchmark, round, accelerator
// and number of accelerators has one.
//
// Software, profile and precision that a row omits come from the catalog's sources, whose prefix is
// the beginning of the row's source ("training_results_v4.0"); rows without a source have profile
// megatron-te, or nemo-lora if they train adapters. Systems are found by system_of (measurement.h).
#pragma once

#include <string>
#include <vector>

#include "tutti/plan/measurement.h"

namespace tutti::plan {

bool is_mlperf_table(const CsvTable& table);

std::vector<Measurement> read_mlperf_results(const CsvTable& table,
                                             const std::vector<MeasurementSource>& sources,
                                             const catalog::Catalog& catalog,
                                             const std::string& models_folder);

}  // namespace tutti::plan
