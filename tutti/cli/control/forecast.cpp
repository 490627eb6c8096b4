#include <fmt/format.h>

#include <cmath>
#include <memory>
#include <vector>

#include "tutti/base/child_process.h"
#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/plan/assumed_site.h"
#include "tutti/cli/plan/common.h"
#include "tutti/cli/program/common.h"
#include "tutti/control/ledger/account_table.h"
#include "tutti/engine/gemm_peak.h"
#include "tutti/launch/home.h"
#include "tutti/node/copy_bandwidth.h"
#include "tutti/plan/machine.h"
#include "tutti/plan/run_forecast.h"

namespace tutti::cli {
namespace {

constexpr const char* kThisMachine = "this-machine";
constexpr double kMeasuringSeconds = 120;

// Makes this machine a system of the folder's catalog, by its measured ceilings; its constants are
// assumed until `tutti plan calibrate RUN --out FOLDER/catalog` has written better ones.
void measure_machine(const control::ControlFolder& folder) {
  FileSystem& files = posix_file_system();
  const std::string written =
      join_path(folder.catalog(), fmt::format("systems/{}.yaml", kThisMachine));
  if (files.exists(written)) return;
  // One at a time: measurements that share the machine would be wrong, and so would their files.
  files.create_directories(folder.catalog());
  const auto lock = take_lock(join_path(folder.catalog(), "lock"), kMeasuringSeconds);
  if (lock == nullptr) {
    fail(ErrorKind::io, "'{}' has been measured by another process for {} s; try again", written,
         kMeasuringSeconds);
  }
  if (files.exists(written)) return;
  print_message("measuring the ceilings of this machine, once\n");
  const std::unique_ptr<engine::Stream> stream = engine::make_cpu_stream();
  plan::MachineCeilings ceilings;
  ceilings.bf16_flops = engine::measure_gemm_peak(*stream, DType::bf16, {1024}, 3);
  ceilings.f32_flops = engine::measure_gemm_peak(*stream, DType::f32, {1024}, 3);
  ceilings.bytes_per_second = node::measure_copy_bandwidth(2);
  ceilings.memory_bytes = static_cast<double>(describe_machine().memory_bytes);
  const std::string date = format_utc(wall_seconds()).substr(0, 10);
  const auto machine =
      plan::machine_files(kThisMachine, ceilings, describe_machine().cores,
                          plan::assumed_constants(), "measured at the first submission", date);
  // The system last: that it is there says that the others are.
  for (const bool last : {false, true}) {
    for (const auto& [file, text] : machine) {
      const std::string full = join_path(folder.catalog(), file);
      if (file.rfind("constants/", 0) == 0 || (full == written) != last) continue;
      files.create_directories(parent_path(full));
      write_file_atomic(files, full, text);
    }
  }
}

// The parts of nodes that the job will have, for its rate.
std::vector<control::Claim> likely_claims(const std::vector<control::Node>& nodes,
                                          const control::JobRequest& request) {
  std::vector<control::Claim> claims;
  for (const control::Node& node : nodes) {
    if (static_cast<int64_t>(claims.size()) == request.nodes) break;
    const bool all = request.cores == 0;
    claims.push_back(
        {0, 1, node.name, all ? node.cores : request.cores, all ? node.gpus : request.gpus});
  }
  return claims;
}

}  // namespace

control::Forecast forecast_job(ControlSession& session, const std::string& recipe_yaml,
                               const control::JobRequest& request, const std::string& system_name,
                               const std::string& own_catalog) {
  FileSystem& files = posix_file_system();
  const bool here = system_name.empty();
  if (here) measure_machine(session.folder());
  std::vector<std::string> folders = catalog_folders(own_catalog);
  if (here) folders.push_back(session.folder().catalog());
  const catalog::Catalog catalog = catalog::load_catalog(files, folders);
  const catalog::System& system = catalog.system(here ? kThisMachine : system_name);
  const std::vector<plan::Constants> sets = plan::load_constants(files, folders);
  const plan::Constants constants = plan::constants_for(sets, system.chip, "");
  const spec::Recipe recipe =
      spec::parse_recipe(recipe_yaml, "recipe", {}, launch::models_folder(files));

  plan::RunQuestion question;
  question.recipe = &recipe;
  question.profile = &spec::find_profile(here ? "tutti" : "megatron-te");
  question.system = &system;
  question.site = &catalog.site(kAssumedSite);
  question.price = catalog.price_of(system.name);
  question.constants = &constants;
  plan::PipelineSimulator simulator;
  const plan::RunForecast run = plan::forecast_run(question, simulator);

  control::Forecast forecast;
  forecast.milliseconds = std::llround(run.wall_seconds * 1000);
  const auto nodes = control::all_nodes(session.database());
  const control::Spend spend =
      control::spend_of(control::rate_of(session.site(), nodes, likely_claims(nodes, request)),
                        forecast.milliseconds);
  forecast.micro_usd = spend.micro_usd;
  forecast.micro_kwh = spend.micro_kwh;
  forecast.basis = fmt::format(
      "{}, {} constants; {} steps", system.name,
      constants.nearness < plan::Nearness::pooled ? "calibrated" : "assumed", recipe.train.steps);
  return forecast;
}

}  // namespace tutti::cli
