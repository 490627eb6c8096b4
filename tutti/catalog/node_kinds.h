// Reference of a node type for `tutti check`: its topology, and the results of a healthy node.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "tutti/catalog/systems.h"

namespace tutti::catalog {

struct NodeKind {
  std::string name;
  // What it is made of; absent: not stated.
  std::optional<int64_t> cores;
  std::optional<int64_t> numa_nodes;
  std::optional<double> memory_bytes;
  std::optional<int64_t> gpus;
  std::vector<std::string> gpu_names;  // any of these; empty: not stated
  std::optional<double> gpu_memory_bytes;
  std::string governor;  // of the cores' clock; empty: not stated

  struct Figure {
    double value = 0;
    std::optional<double> tolerance;  // relative; absent: that of the check
  };
  // By the check's name and unit: "f32_product_tflops".
  std::map<std::string, Figure> figures;
  std::string source;  // where the figures are from
};

// From an entry of kind node: quantities cores_count, numa_nodes_count, memory_gigabytes (10^9),
// gpus_count, gpu_memory_gigabytes, figures by the names in node_figures(), and
// NAME_tolerance_ratio beside a figure NAME_UNIT; texts gpu, governor, processor. Throws usage for
// a quantity it does not know, or a tolerance of 1 or more.
NodeKind node_kind_from(const Entry& entry);
const std::vector<std::string>& node_figures();

// What a node of that kind (FOLDER/nodes/*.yaml), or of that system, should be like. Throws
// not_found with the nearest and all known names.
NodeKind load_node_kind(FileSystem& files, const std::vector<std::string>& folders,
                        const std::string& name);

// A node of a system: its GPUs and memory; data sheets have no figures of nodes.
NodeKind node_kind_of(const System& system);

// An entry of kind node with these figures, to be read by node_kind_from.
std::string node_kind_yaml(const NodeKind& kind, const std::string& processor,
                           const std::string& source, const std::string& date);

}  // namespace tutti::catalog
