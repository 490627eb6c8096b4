// `tutti bench storage`: a disk or an object store as training uses it, beside what it can do.
#include "tutti/catalog/storage.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/machine.h"
#include "tutti/base/text.h"
#include "tutti/base/units.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/launch/home.h"
#include "tutti/object/file_system.h"
#include "tutti/object/uri.h"
#include "tutti/telemetry/sinks/progress_bar.h"
#include "tutti/train/tasks/storage_bench.h"

namespace tutti::cli {
namespace {

struct StorageArguments {
  std::string path;
  std::string size = "1GiB";
  std::string model = "llama3.1-8b";
  std::string catalog;
  std::string name;
  train::StorageBenchOptions options;
  bool json = false;
};

std::string bytes_text(int64_t bytes) { return format_bytes(static_cast<double>(bytes)); }

std::string storage_rate_text(double rate, const std::string& unit) {
  if (unit == "bytes/s") return format_bytes(rate) + "/s";
  return (rate < 100 ? fmt::format("{:.1f}", rate) : format_count(rate)) + "/s";
}

// Whole milliseconds are too coarse.
std::string latency_text(double seconds) {
  return seconds >= 1e-3 && seconds < 0.1 ? fmt::format("{:.2f} ms", seconds * 1e3)
                                          : format_seconds(seconds);
}

const char* label_of(const std::string& figure) {
  constexpr std::pair<const char*, const char*> kLabels[] = {
      {"write", "write, durable"},
      {"read", "read"},
      {"read_many", "read, all readers"},
      {"random_4k", "random 4 KiB"},
      {"random_4k_many", "random 4 KiB, all readers"},
      {"random_64k", "random 64 KiB"},
      {"random_64k_many", "random 64 KiB, all readers"},
      {"small_write", "write 4 KiB, durable"},
      {"create", "create"},
      {"stat", "stat"},
      {"remove", "remove"},
      {"checkpoint_save", "checkpoint save, durable"},
      {"checkpoint_load", "checkpoint load"}};
  for (const auto& [name, label] : kLabels) {
    if (figure == name) return label;
  }
  return "";
}

std::string checkpoint_text(const train::CheckpointShape& shape) {
  const std::string tensors =
      shape.tensors == shape.state_tensors
          ? fmt::format("all {} tensors", shape.tensors)
          : fmt::format("{} of {} tensors", shape.tensors, shape.state_tensors);
  const std::string rows = shape.bytes < shape.state_bytes ? ", the first rows of each" : "";
  return fmt::format("{} of the {} that the state of {} has: {}{}", bytes_text(shape.bytes),
                     bytes_text(shape.state_bytes), shape.model, tensors, rows);
}

void print_bench(const train::StorageBench& bench) {
  std::vector<std::pair<std::string, std::string>> head = {
      {"storage", fmt::format("{} {}", bench.is_store ? "store" : "disk", bench.path)},
      {"file", fmt::format("{}, {} readers", bytes_text(bench.file_bytes), bench.readers)}};
  if (bench.is_store) {
    head.emplace_back("round trip", latency_text(bench.round_trip_seconds) + " (median)");
  } else {
    head.emplace_back("reads by", read_source_text(bench.source));
  }
  head.emplace_back("checkpoint", checkpoint_text(bench.checkpoint));
  print_text(format_pairs(head));
  std::vector<std::vector<std::string>> rows = {
      {"figure", "measured", "median", "p99", "can do", "share", ""}};
  for (const train::StorageFigure& figure : bench.figures) {
    const bool timed = figure.median_seconds > 0, bounded = figure.ceiling > 0;
    rows.push_back({label_of(figure.name), storage_rate_text(figure.value, figure.unit),
                    timed ? latency_text(figure.median_seconds) : "",
                    timed ? latency_text(figure.p99_seconds) : "",
                    bounded ? storage_rate_text(figure.ceiling, figure.unit) : "",
                    bounded ? fmt::format("{:.0f}%", 100 * figure.value / figure.ceiling) : "",
                    figure.ceiling_from});
  }
  print_text(format_table(rows));
}

// The host's name and the path: several machines may have one of that path.
std::string entry_name(const StorageArguments& arguments) {
  if (!arguments.name.empty()) return arguments.name;
  if (object::is_uri(arguments.path)) return arguments.path;
  const std::string path = posix_file_system().resolve(arguments.path);
  return describe_machine().host + ":" + path;
}

catalog::Storage entry_of(const train::StorageBench& bench, const StorageArguments& arguments) {
  const Machine machine = describe_machine();
  catalog::Storage entry;
  entry.name = entry_name(arguments);
  entry.path = object::is_uri(bench.path) ? bench.path : posix_file_system().resolve(bench.path);
  entry.machine = fmt::format("{}, {} cores of {}", machine.host, machine.cores, machine.cpu);
  entry.reads_from = bench.is_store ? "store" : read_source_text(bench.source);
  const auto set = [&](const std::string& name, double value) {
    if (value > 0) entry.figures[name] = value;
  };
  for (const train::StorageFigure& figure : bench.figures) {
    const bool streamed = figure.unit == "bytes/s";
    const double scale = streamed ? 1e-9 : 1;
    const std::string unit = streamed ? "gigabytes_per_second" : "per_second";
    set(figure.name + "_" + unit, figure.value * scale);
    set(figure.name + "_ceiling_" + unit, figure.ceiling * scale);
    set(figure.name + "_median_microseconds", figure.median_seconds * 1e6);
    set(figure.name + "_p99_microseconds", figure.p99_seconds * 1e6);
  }
  set("round_trip_microseconds", bench.round_trip_seconds * 1e6);
  set("readers_count", bench.readers);
  set("file_gigabytes", static_cast<double>(bench.file_bytes) * 1e-9);
  set("checkpoint_gigabytes", static_cast<double>(bench.checkpoint.bytes) * 1e-9);
  set("checkpoint_state_gigabytes", static_cast<double>(bench.checkpoint.state_bytes) * 1e-9);
  return entry;
}

void write_entry(const train::StorageBench& bench, const StorageArguments& arguments) {
  const catalog::Storage entry = entry_of(bench, arguments);
  const std::string yaml = catalog::storage_yaml(
      entry, fmt::format("tutti bench storage, median of {}", arguments.options.repeats),
      format_utc(wall_seconds()).substr(0, 10));
  catalog::storage_from(catalog::parse_entry(yaml, arguments.catalog));
  write_file_atomic(posix_file_system(), arguments.catalog, yaml);
}

// A minute later it would be too late to learn it.
void check_entry_path(const std::string& path) {
  if (path.empty()) return;
  FileSystem& files = posix_file_system();
  if (files.is_directory(path)) {
    fail(ErrorKind::usage, "--catalog: '{}' is a folder; name a file, such as storage.yaml", path);
  }
  if (!files.is_directory(parent_path(path))) {
    fail(ErrorKind::not_found, "--catalog: the folder '{}' does not exist", parent_path(path));
  }
}

int run_bench_storage(StorageArguments arguments) {
  train::StorageBenchOptions& options = arguments.options;
  options.size_bytes = parse_bytes(arguments.size, "--size");
  if (options.size_bytes < train::kLeastStorageBytes) {
    fail(ErrorKind::usage, "--size: '{}' is too little; write {} or more", arguments.size,
         format_bytes(static_cast<double>(train::kLeastStorageBytes)));
  }
  check_entry_path(arguments.catalog);
  options.model =
      spec::load_model_preset(arguments.model, launch::models_folder(posix_file_system()));
  options.check = throw_if_interrupted;
  telemetry::ProgressBar progress("measure", "figures");
  options.progress = [&](int64_t done, int64_t total) { progress.update(done, total); };
  watch_signals();  // before there are other threads
  const train::StorageBench bench =
      train::bench_storage(object::file_system(), arguments.path, options);
  progress.finish();
  if (!bench.is_store && bench.source == ReadSource::memory) {
    print_message(
        "note: what is read is in memory, so that reads say nothing about a disk (tmpfs?)\n");
  }
  if (!arguments.catalog.empty()) write_entry(bench, arguments);
  if (arguments.json) {
    Json json = to_json(bench);
    json["machine"] = describe_machine().host;
    json["time"] = format_utc(wall_seconds());
    json["catalog"] = arguments.catalog.empty() ? Json(nullptr) : Json(arguments.catalog);
    print_json(json);
    return exit_ok;
  }
  print_bench(bench);
  if (!arguments.catalog.empty()) print_message(arguments.catalog + "\n");
  return exit_ok;
}

}  // namespace

void add_bench_storage(CLI::App& bench, Action& action) {
  const auto arguments = std::make_shared<StorageArguments>();
  train::StorageBenchOptions& options = arguments->options;
  CLI::App* command = bench.add_subcommand(
      "storage", "A disk or an object store: reads, writes, names, checkpoints");
  command->add_option("PATH", arguments->path, "A folder, or s3://BUCKET/PREFIX")->required();
  command->add_option("--size", arguments->size, "Most that is on the storage at any time")
      ->type_name("BYTES")
      ->capture_default_str();
  command
      ->add_option("--seconds", options.seconds,
                   "About as long; a slow storage is measured with smaller files")
      ->check(between(1, 86400))
      ->capture_default_str();
  command->add_option("--readers", options.readers, "Readers side by side, such as ranks of a node")
      ->check(between(1, 256))
      ->capture_default_str();
  command->add_option("--repeats", options.repeats, "Of whole files and checkpoints; medians count")
      ->check(between(1, 1000))
      ->capture_default_str();
  command
      ->add_option("--model", arguments->model,
                   "Preset of recipes/models whose state the checkpoint is a part of")
      ->capture_default_str();
  command
      ->add_option("--catalog", arguments->catalog, "Write the figures as an entry of the catalog")
      ->type_name("FILE");
  command->add_option("--name", arguments->name, "Of the entry; default: HOST:PATH, or the URI");
  add_json_option(*command, arguments->json);
  command->footer(
      "Each figure is beside what the device or link does in the same run: O_DIRECT requests, 16\n"
      "at a time; of a store, plain requests likewise, and the round trip of an empty one.\n"
      "Everything is written below a new folder in PATH, which is removed, also after Ctrl-C.\n\n"
      "Examples:\n"
      "  tutti bench storage /scratch\n"
      "  tutti bench storage s3://lab/bench --seconds 30 --readers 16\n"
      "  tutti bench storage /scratch --catalog scratch.yaml --name our-scratch");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_bench_storage(*arguments); }; });
}

}  // namespace tutti::cli
