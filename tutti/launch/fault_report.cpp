#include "tutti/launch/fault_report.h"

#include <fmt/format.h>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/message.h"
#include "tutti/comm/rendezvous/launch_environment.h"

namespace tutti::launch {

void write_fault(FileSystem& files, const std::string& run_folder, const FaultReport& report) {
  const double now = wall_seconds();
  const std::string launch = comm::read_process_variable("TUTTI_LAUNCH").value_or("");
  Json json = {{"time", format_utc(now)},
               {"wall_seconds", now},
               {"generation", report.generation},
               {"rank", report.rank},
               {"node", report.node},
               {"step", report.step},
               {"cause", report.cause},
               {"action", report.action},
               {"ranks_before", report.ranks_before},
               {"ranks_after", report.ranks_after},
               {"lost_steps", report.lost_steps},
               {"lost_seconds", report.lost_seconds}};
  if (!launch.empty()) json["launch"] = launch;
  try {
    const std::string folder = join_path(run_folder, "faults");
    files.create_directories(folder);
    const std::string name =
        fmt::format("fault-{}{}{:03}.json", launch,
                    launch.empty() ? format_utc_compact(now) + "-" : "-", report.generation);
    write_file_atomic(files, join_path(folder, name), dump_json(json) + "\n");
  } catch (const Error& error) {
    print_message(fmt::format("tutti: warning: no fault report: {}\n", error.what()));
  }
}

}  // namespace tutti::launch
