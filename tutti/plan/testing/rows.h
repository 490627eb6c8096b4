// For tests of the planner against measurements: the shipped catalog and rows of a CSV text.
#pragma once

#include <string>
#include <vector>

#include "tutti/plan/mlperf_rows.h"
#include "tutti/plan/validate.h"
#include "tutti_test_paths.h"

namespace tutti::plan {

inline const std::string& catalog_folder() {
  static const std::string folder = std::string(TUTTI_SOURCE_DIR) + "/catalog";
  return folder;
}

inline const catalog::Catalog& shipped_catalog() {
  static const catalog::Catalog catalog =
      catalog::load_catalog(posix_file_system(), {catalog_folder()});
  return catalog;
}

inline std::vector<PreparedRow> rows_of(const std::string& csv, const std::string& source = "") {
  const CsvTable table = parse_csv(csv, "rows.csv");
  const auto read = is_mlperf_table(table) ? read_mlperf_results : read_measurements;
  std::vector<PreparedRow> rows;
  for (Measurement& row :
       read(table, load_sources(posix_file_system(), {catalog_folder()}), shipped_catalog(),
            std::string(TUTTI_SOURCE_DIR) + "/recipes/models")) {
    if (row.source.compare(0, source.size(), source) == 0) {
      rows.emplace_back(std::move(row), shipped_catalog());
    }
  }
  reject_other_conventions(rows);
  return rows;
}

inline std::string shared_validation(const std::string& name) {
  return std::string(TUTTI_SOURCE_DIR) + "/../shared/validation/" + name;
}

// A text like a published one: two models of Korthikanti et al. 2022, table 5.
inline constexpr const char* kTwoModels =
    "source,model,layers,hidden,heads,kv_heads,ffn,vocab,seq,global_batch,micro_batch,tp,pp,vpp,cp,"
    "dp,gpus,gpu_type,precision,recompute,metric,value,zero,note\n"
    "Korthikanti,gpt-22B,48,6144,64,64,24576,51200,2048,4,4,8,1,1,1,1,8,A100-SXM-80GB,fp16,full,"
    "iter_time_s,1.42,0,no sequence parallel\n"
    "Korthikanti,gpt-22B,48,6144,64,64,24576,51200,2048,4,4,8,1,1,1,1,8,A100-SXM-80GB,fp16,"
    "selective,iter_time_s,1.1,0,\n"
    "Korthikanti,gpt3-175B,96,12288,96,96,49152,51200,2048,64,1,8,8,3,1,1,64,A100-SXM-80GB,fp16,"
    "full,iter_time_s,18.13,0,no sequence parallel\n"
    "Korthikanti,gpt3-175B,96,12288,96,96,49152,51200,2048,64,1,8,8,3,1,1,64,A100-SXM-80GB,fp16,"
    "selective,iter_time_s,13.75,0,\n";

}  // namespace tutti::plan
