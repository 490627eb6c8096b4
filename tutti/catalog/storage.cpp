#include "tutti/catalog/storage.h"

#include <fmt/format.h>

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/catalog/known_quantities.h"

namespace tutti::catalog {
namespace {

constexpr const char* kSave = "checkpoint_save_gigabytes_per_second";
constexpr const char* kLoad = "checkpoint_load_gigabytes_per_second";
constexpr const char* kRandom = "random_64k_many_per_second";

// JSON's strings are YAML's.
std::string text_line(const char* key, const std::string& text) {
  return text.empty() ? "" : fmt::format("  {}: {}\n", key, dump_json(Json(text)));
}

}  // namespace

const std::vector<std::string>& storage_figures() {
  static const std::vector<std::string> figures = [] {
    std::vector<std::string> names;
    for (const char* stream :
         {"write", "read", "read_many", "checkpoint_save", "checkpoint_load"}) {
      names.push_back(fmt::format("{}_gigabytes_per_second", stream));
      names.push_back(fmt::format("{}_ceiling_gigabytes_per_second", stream));
    }
    for (const char* request : {"random_4k", "random_4k_many", "random_64k", "random_64k_many",
                                "small_write", "create", "stat", "remove"}) {
      names.push_back(fmt::format("{}_per_second", request));
      names.push_back(fmt::format("{}_ceiling_per_second", request));
      names.push_back(fmt::format("{}_median_microseconds", request));
      names.push_back(fmt::format("{}_p99_microseconds", request));
    }
    names.insert(names.end(), {"round_trip_microseconds", "readers_count", "file_gigabytes",
                               "checkpoint_gigabytes", "checkpoint_state_gigabytes"});
    return names;
  }();
  return figures;
}

double Storage::figure(const std::string& key) const {
  const auto found = figures.find(key);
  return found == figures.end() ? 0 : found->second;
}

double Storage::checkpoint_save_bytes_per_second() const { return figure(kSave) * 1e9; }
double Storage::checkpoint_load_bytes_per_second() const { return figure(kLoad) * 1e9; }
double Storage::random_bytes_per_second() const { return figure(kRandom) * kRandomReadBytes; }

Storage storage_from(const Entry& entry) {
  if (entry.kind != "storage") {
    fail(ErrorKind::usage,
         "{}: kind: '{}', but a storage is an entry of kind storage, as `tutti bench storage "
         "--catalog FILE` writes it",
         entry.origin, entry.kind);
  }
  check_quantities(entry, storage_figures());
  check_texts(entry, {"path", "machine", "reads_from"});
  Storage storage;
  storage.name = entry.name;
  storage.path = entry.text_or("path", "");
  storage.machine = entry.text_or("machine", "");
  storage.reads_from = entry.text_or("reads_from", "");
  for (const auto& [key, quantity] : entry.quantities) storage.figures[key] = quantity.value;
  for (const char* needed : {kSave, kLoad, kRandom}) {
    if (entry.number(needed) <= 0) {
      fail(ErrorKind::usage, "{}: quantities.{}: must be above 0", entry.origin, needed);
    }
  }
  const Quantity& from = entry.quantities.at(kSave);
  storage.source = fmt::format("{}, {}", from.source, from.date);
  return storage;
}

std::string storage_yaml(const Storage& storage, const std::string& source,
                         const std::string& date) {
  std::string out = fmt::format("kind: storage\nname: {}\nsource: {{text: {}, date: {}}}\n",
                                dump_json(Json(storage.name)), dump_json(Json(source)), date);
  const std::string texts = text_line("path", storage.path) +
                            text_line("machine", storage.machine) +
                            text_line("reads_from", storage.reads_from);
  if (!texts.empty()) out += "texts:\n" + texts;
  out += "quantities:\n";
  for (const std::string& key : storage_figures()) {
    const auto found = storage.figures.find(key);
    if (found != storage.figures.end()) out += fmt::format("  {}: {:.6g}\n", key, found->second);
  }
  return out;
}

}  // namespace tutti::catalog
