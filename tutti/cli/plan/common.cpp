#include "tutti/cli/plan/common.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/base/file.h"
#include "tutti/base/text.h"
#include "tutti/cli/program/common.h"
#include "tutti/launch/home.h"
#include "tutti/plan/mlperf_rows.h"

namespace tutti::cli {
namespace {

constexpr const char* kCatalogFolders[] = {"chips",   "constants", "fabrics",   "failures",
                                           "nodes",   "prices",    "published", "sites",
                                           "sources", "systems",   "benchmarks"};

}  // namespace

std::vector<std::string> catalog_folders(const std::string& own) {
  std::vector<std::string> folders;
  for (const std::string& home : launch::home_folders(posix_file_system())) {
    const std::string folder = join_path(home, "catalog");
    if (posix_file_system().is_directory(folder)) {
      folders.push_back(folder);
      break;
    }
  }
  if (!own.empty()) {
    FileSystem& files = posix_file_system();
    if (!files.is_directory(own)) {
      fail(ErrorKind::not_found, "--catalog: '{}' is not a folder", own);
    }
    bool any = false;
    for (const char* part : kCatalogFolders) any = any || files.is_directory(join_path(own, part));
    if (!any) {
      fail(ErrorKind::usage, "--catalog: '{}' has no catalog folder: {}", own,
           fmt::join(kCatalogFolders, ", "));
    }
    folders.push_back(own);
  }
  if (folders.empty()) {
    fail(ErrorKind::not_found,
         "no catalog folder next to the program; set TUTTI_HOME to the folder "
         "that holds catalog/ and recipes/, or give --catalog FOLDER");
  }
  return folders;
}

void check_software(const std::vector<plan::Constants>& sets, const std::string& software) {
  if (software.empty()) return;
  std::vector<std::string> names;
  for (const plan::Constants& set : sets) {
    const bool family = set.software != plan::kAny &&
                        plan::software_family(set.software) == plan::software_family(software);
    if (set.software == software || family) return;
    names.push_back(set.software);
  }
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  fail(ErrorKind::usage, "--software: no constants of '{}' are in the catalog; known: {}", software,
       join(names, ", "));
}

std::vector<plan::PreparedRow> anchor_rows(const std::string& path, const std::string& system,
                                           const std::vector<std::string>& folders,
                                           const catalog::Catalog& catalog) {
  FileSystem& files = posix_file_system();
  CsvTable table = parse_csv(read_file(files, path), path);
  if (table.column("system") < 0 && !system.empty()) {
    table.columns.emplace_back("system");
    for (std::vector<std::string>& row : table.rows) row.push_back(system);
  }
  const auto read =
      plan::is_mlperf_table(table) ? plan::read_mlperf_results : plan::read_measurements;
  std::vector<plan::PreparedRow> rows;
  for (plan::Measurement& row :
       read(table, plan::load_sources(files, folders), catalog, launch::models_folder(files))) {
    rows.emplace_back(std::move(row), catalog);
  }
  plan::reject_other_conventions(rows);
  return rows;
}

void add_catalog_option(CLI::App& command, std::string& folder) {
  command
      .add_option("--catalog", folder,
                  "Folder of further entries (chips/, systems/, ...), which override those of the "
                  "same name")
      ->type_name("FOLDER");
}

void add_profile_option(CLI::App& command, std::string& profile) {
  command.add_option("--profile", profile, "Implementation: " + join(spec::profile_names(), ", "))
      ->capture_default_str();
}

void add_price_option(CLI::App& command, std::string& price) {
  command
      .add_option("--price", price,
                  "on-demand, spot or reserved; default: on-demand, or what the system has")
      ->type_name("KIND");
}

void warn_no_price(const catalog::Catalog& catalog, const catalog::System& system) {
  if (catalog.price_of(system.name) != nullptr) return;
  print_message(
      fmt::format("no public price of {} is in the catalog: nothing is costed; add one (--catalog "
                  "FOLDER, prices/*.yaml)\n",
                  system.name));
}

spec::Recipe planned_recipe(const std::string& recipe_name,
                            const std::vector<std::string>& overrides, int64_t gpus) {
  FileSystem& files = posix_file_system();
  const std::string path = launch::find_recipe(files, recipe_name);
  const std::string text = read_file(files, path);
  spec::Recipe recipe = spec::parse_recipe(text, path, overrides, launch::models_folder(files));
  if (gpus == 0 || recipe.parallel.world() == gpus) return recipe;
  const spec::Mesh& mesh = recipe.parallel;
  for (const std::string& own : overrides) {
    if (!starts_with(own, "parallel.dp=")) continue;
    fail(ErrorKind::usage,
         "--gpus: {} contradicts dp {} x tp {} x pp {} x cp {} = {}; leave {} out", gpus, mesh.dp,
         mesh.tp, mesh.pp, mesh.cp, mesh.world(), own);
  }
  const int64_t rest = mesh.tp * mesh.pp * mesh.cp;
  if (gpus % rest != 0) {
    fail(ErrorKind::usage, "--gpus: {} is not a multiple of tp {} x pp {} x cp {} = {}", gpus,
         mesh.tp, mesh.pp, mesh.cp, rest);
  }
  std::vector<std::string> more = overrides;
  more.push_back(fmt::format("parallel.dp={}", gpus / rest));
  return spec::parse_recipe(text, path, more, launch::models_folder(files));
}

Json split_json(const plan::Split& split) {
  Json json = Json::object();
  for (const plan::SplitPart& part : plan::split_parts()) json[part.key] = split.*part.seconds;
  return json;
}

}  // namespace tutti::cli
