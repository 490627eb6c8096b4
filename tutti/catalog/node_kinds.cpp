#include "tutti/catalog/node_kinds.h"

#include <fmt/format.h>

#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/text.h"
#include "tutti/catalog/catalog.h"
#include "tutti/catalog/known_quantities.h"
#include "tutti/catalog/load_kind.h"

namespace tutti::catalog {
namespace {

constexpr const char* kToleranceSuffix = "_tolerance_ratio";

// "f32_product_tflops" -> "f32_product".
std::string figure_name(const std::string& figure) {
  return figure.substr(0, figure.size() - unit_of(figure)->size() - 1);
}

std::optional<int64_t> count_of(const Entry& entry, const std::string& key) {
  if (entry.quantities.count(key) == 0) return std::nullopt;
  return static_cast<int64_t>(entry.number(key));
}

std::optional<double> bytes_of(const Entry& entry, const std::string& key) {
  if (entry.quantities.count(key) == 0) return std::nullopt;
  return entry.number(key) * 1e9;
}

// A text that any YAML reader takes for itself: JSON's strings are YAML's.
std::string quoted(const std::string& text) { return dump_json(Json(text)); }

}  // namespace

const std::vector<std::string>& node_figures() {
  static const std::vector<std::string> figures = {"clock_gigahertz",
                                                   "f32_product_tflops",
                                                   "bf16_product_tflops",
                                                   "memory_copy_gigabytes_per_second",
                                                   "disk_write_gigabytes_per_second",
                                                   "disk_read_gigabytes_per_second",
                                                   "disk_fsync_microseconds",
                                                   "link_latency_microseconds",
                                                   "link_gigabytes_per_second",
                                                   "all_reduce_gigabytes_per_second"};
  return figures;
}

NodeKind node_kind_from(const Entry& entry) {
  std::vector<std::string> known = {"cores_count", "numa_nodes_count", "memory_gigabytes",
                                    "gpus_count", "gpu_memory_gigabytes"};
  for (const std::string& figure : node_figures()) {
    known.push_back(figure);
    known.push_back(figure_name(figure) + kToleranceSuffix);
  }
  check_quantities(entry, known);
  NodeKind kind;
  kind.name = entry.name;
  kind.cores = count_of(entry, "cores_count");
  kind.numa_nodes = count_of(entry, "numa_nodes_count");
  kind.memory_bytes = bytes_of(entry, "memory_gigabytes");
  kind.gpus = count_of(entry, "gpus_count");
  kind.gpu_memory_bytes = bytes_of(entry, "gpu_memory_gigabytes");
  if (const std::string gpu = entry.text_or("gpu", ""); !gpu.empty()) kind.gpu_names = {gpu};
  kind.governor = entry.text_or("governor", "");
  for (const std::string& key : node_figures()) {
    const auto found = entry.quantities.find(key);
    if (found == entry.quantities.end()) continue;
    NodeKind::Figure figure;
    figure.value = found->second.value;
    kind.source = fmt::format("{}, {}", found->second.source, found->second.date);
    const std::string tolerance = figure_name(key) + kToleranceSuffix;
    if (entry.quantities.count(tolerance) != 0) {
      figure.tolerance = entry.number(tolerance);
      if (*figure.tolerance >= 1) {
        fail(ErrorKind::usage, "{}: quantities.{}: {} is not below 1", entry.origin, tolerance,
             *figure.tolerance);
      }
    }
    kind.figures[key] = figure;
  }
  return kind;
}

NodeKind load_node_kind(FileSystem& files, const std::vector<std::string>& folders,
                        const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [known, entry] : load_kind(files, folders, "nodes", "node")) {
    if (entry.answers_to(name)) return node_kind_from(entry);
    names.push_back(known);
  }
  for (const System& system : load_catalog(files, folders).systems) {
    if (system.entry.answers_to(name)) return node_kind_of(system);
    names.push_back(system.name);
  }
  const std::string near = nearest_word(name, names);
  fail(ErrorKind::not_found, "node: '{}' is not in the catalog;{} known: {}", name,
       near.empty() ? "" : " did you mean '" + near + "'?", join(names, ", "));
}

NodeKind node_kind_of(const System& system) {
  NodeKind kind;
  kind.name = system.name;
  if (system.host_memory_bytes > 0) kind.memory_bytes = system.host_memory_bytes;
  if (system.chips_per_node > 0) kind.gpus = system.chips_per_node;
  kind.gpu_names = {system.chip.name};
  for (const std::string& alias : system.chip.entry.aliases) kind.gpu_names.push_back(alias);
  if (system.chip.memory_bytes > 0) kind.gpu_memory_bytes = system.chip.memory_bytes;
  return kind;
}

std::string node_kind_yaml(const NodeKind& kind, const std::string& processor,
                           const std::string& source, const std::string& date) {
  std::string out = fmt::format("kind: node\nname: {}\nsource: {{text: {}, date: {}}}\ntexts:\n",
                                quoted(kind.name), quoted(source), date);
  out += fmt::format("  processor: {}\n", quoted(processor));
  if (!kind.gpu_names.empty()) out += fmt::format("  gpu: {}\n", quoted(kind.gpu_names.front()));
  if (!kind.governor.empty()) out += fmt::format("  governor: {}\n", quoted(kind.governor));
  out += "quantities:\n";
  if (kind.cores) out += fmt::format("  cores_count: {}\n", *kind.cores);
  if (kind.numa_nodes) out += fmt::format("  numa_nodes_count: {}\n", *kind.numa_nodes);
  if (kind.memory_bytes)
    out += fmt::format("  memory_gigabytes: {:.6g}\n", *kind.memory_bytes / 1e9);
  if (kind.gpus) out += fmt::format("  gpus_count: {}\n", *kind.gpus);
  if (kind.gpu_memory_bytes) {
    out += fmt::format("  gpu_memory_gigabytes: {:.6g}\n", *kind.gpu_memory_bytes / 1e9);
  }
  for (const auto& [key, figure] : kind.figures) {
    out += fmt::format("  {}: {:.6g}\n", key, figure.value);
    if (figure.tolerance) {
      out += fmt::format("  {}{}: {:.3g}\n", figure_name(key), kToleranceSuffix, *figure.tolerance);
    }
  }
  return out;
}

}  // namespace tutti::catalog
