// The parts of a run's page.
#pragma once

#include <string>
#include <vector>

#include "tutti/report/run_summary.h"

namespace tutti::report {

// Charts (run_charts.cpp).
std::string loss_section(const RunData& run, const RunSummary& summary);
std::string speed_section(const RunData& run, const RunSummary& summary);
std::string optimizer_section(const RunData& run, const RunSummary& summary);
std::string timeline_section(const RunData& run);
std::string gpu_section(const RunData& run);  // empty where none was monitored (gpu_charts.cpp)

// Tables and facts (run_tables.cpp).
std::string evaluation_table(const RunData& run, const RunSummary& summary);
std::string checkpoint_table(const RunData& run, const RunSummary& summary);
std::string slowest_steps_table(const RunData& run);
std::string samples_section(const RunData& run);  // empty where the model wrote none
std::string incidents_section(const RunData& run);
std::string data_section(const RunData& run);
std::string machine_section(const RunData& run, const RunSummary& summary);
std::string recipe_section(const RunData& run);

}  // namespace tutti::report
