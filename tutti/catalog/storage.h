// A storage that was measured from one machine: a disk of a node, or an object store over its link
// (`tutti bench storage PATH --catalog FILE`). The planner prices the feed of data, starts and
// checkpoints by it.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tutti/catalog/entry.h"

namespace tutti::catalog {

struct Storage {
  std::string name;
  std::string path;        // as it was measured
  std::string machine;     // that measured it
  std::string reads_from;  // where cold reads came from: "O_DIRECT", "store", ...
  std::string source;      // of the figures, with the date
  // By their names in storage_figures(), in the unit that the name ends in.
  std::map<std::string, double> figures;

  double figure(const std::string& key) const;  // 0: not measured
  double checkpoint_save_bytes_per_second() const;
  double checkpoint_load_bytes_per_second() const;
  // Of several readers, 64 KiB each: how tokens are fetched.
  double random_bytes_per_second() const;
};

inline constexpr double kRandomReadBytes = 65536;

const std::vector<std::string>& storage_figures();

// From an entry of kind storage: the quantities in storage_figures(), of which it needs
// checkpoint_save, checkpoint_load and random_64k_many; texts path, machine, reads_from. Throws
// usage for a quantity that it does not know.
Storage storage_from(const Entry& entry);

// An entry with these figures, to be read by storage_from.
std::string storage_yaml(const Storage& storage, const std::string& source,
                         const std::string& date);

}  // namespace tutti::catalog
