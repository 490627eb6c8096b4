#include "tutti/train/tasks/storage_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/clock.h"
#include "tutti/base/object_store.h"
#include "tutti/base/page_cache.h"
#include "tutti/base/quantile.h"
#include "tutti/train/tasks/bench_folder.h"

namespace tutti::train {
namespace {

constexpr int kDeep = 16;  // requests at a time, of ceilings
constexpr int64_t kProbeBytes = int64_t{8} << 20;
constexpr int64_t kSmallBytes = 4096;
constexpr int64_t kMostNames = 2000;
constexpr int64_t kMostSmallWrites = 200;
constexpr int64_t kMostRandomReads = 20'000;
// Of the seconds of the whole, that one figure or its ceiling may take.
constexpr double kShare = 0.05;
constexpr double kFileShare = 0.025;  // that one pass over the file takes, about
constexpr int64_t kPhases = 18;

// Of whole files, in streams of bytes.
int64_t streamed_bytes(const node::TimedRequests& requests, int64_t file_bytes) {
  return std::min(file_bytes, static_cast<int64_t>(requests.seconds.size()) * node::kStreamBytes);
}

class Bench {
 public:
  Bench(FileSystem& files, const std::string& path, const StorageBenchOptions& options)
      : files_(files), options_(options), folder_(files, path) {
    out_.path = path;
    out_.is_store = object_store(files, path) != nullptr;
    out_.readers = options.readers;
  }

  StorageBench run() {
    const double begin = monotonic_seconds();
    choose_file();
    measure_streams();
    measure_random();
    files_.remove_file(file_);
    measure_small();
    measure_names();
    measure_checkpoint();
    folder_.remove();
    if (options_.progress) options_.progress(kPhases, kPhases);
    out_.seconds = monotonic_seconds() - begin;
    return std::move(out_);
  }

 private:
  void next_phase() {
    if (options_.check) options_.check();
    if (options_.progress) options_.progress(phase_++, kPhases);
  }

  node::RequestLimits limits(int threads, int64_t most = INT64_MAX) const {
    return {threads, kShare * options_.seconds, most};
  }

  bool has_ceilings() const { return out_.is_store || options_.around_cache; }

  // Calls `once`, which returns bytes and seconds, as often as asked for and time allows.
  StorageFigure& add_stream(const std::string& name,
                            const std::function<std::pair<int64_t, double>()>& once) {
    next_phase();
    StorageFigure figure;
    figure.name = name;
    figure.unit = "bytes/s";
    const double end = monotonic_seconds() + kShare * options_.seconds;
    do {
      const auto [bytes, seconds] = once();
      figure.repeats.push_back(static_cast<double>(bytes) / std::max(seconds, 1e-9));
      figure.bytes += bytes;
      ++figure.requests;
    } while (figure.requests < options_.repeats && monotonic_seconds() < end);
    figure.value = quantile(figure.repeats, 0.5);
    out_.figures.push_back(std::move(figure));
    return out_.figures.back();
  }

  StorageFigure& add_requests(const std::string& name, int64_t bytes,
                              const node::TimedRequests& requests) {
    StorageFigure figure;
    figure.name = name;
    figure.unit = "requests/s";
    figure.value = requests.per_second();
    figure.repeats = {figure.value};
    figure.median_seconds = requests.latency_seconds(0.5);
    figure.p99_seconds = requests.latency_seconds(0.99);
    figure.requests = static_cast<int64_t>(requests.seconds.size());
    figure.bytes = bytes * figure.requests;
    out_.figures.push_back(std::move(figure));
    return out_.figures.back();
  }

  // The median of one to `repeats` measurements of a ceiling.
  double ceiling(const std::function<double()>& once) {
    next_phase();
    std::vector<double> rates;
    const double end = monotonic_seconds() + kShare * options_.seconds;
    do {
      rates.push_back(once());
    } while (static_cast<int>(rates.size()) < options_.repeats && monotonic_seconds() < end);
    return quantile(rates, 0.5);
  }

  void set_ceiling(const std::vector<std::string>& names, double value, const std::string& from) {
    for (StorageFigure& figure : out_.figures) {
      if (std::find(names.begin(), names.end(), figure.name) == names.end()) continue;
      figure.ceiling = value;
      figure.ceiling_from = from;
    }
  }

  // As large as one pass over it may take, and half the space.
  void choose_file() {
    next_phase();
    file_ = folder_.file("file");
    const int64_t probe = std::min(kProbeBytes, options_.size_bytes / 2);
    const double seconds = node::write_whole(files_, file_, probe, options_.check);
    const double bytes = static_cast<double>(probe) / seconds * kFileShare * options_.seconds;
    const int64_t half = options_.size_bytes / 2;
    const auto most = static_cast<double>(half);
    const auto wanted =
        static_cast<int64_t>(std::clamp(bytes, static_cast<double>(node::kStreamBytes), most));
    out_.file_bytes = std::max<int64_t>(1, wanted / node::kStreamBytes) * node::kStreamBytes;
    if (out_.is_store) out_.round_trip_seconds = send_empty(1, 100).latency_seconds(0.5);
  }

  // Requests without bytes, for the facts of a small object.
  node::TimedRequests send_empty(int threads, int64_t most) {
    const std::string path = folder_.file("empty");
    node::write_whole(files_, path, 1, options_.check);
    return node::time_requests(limits(threads, most), options_.check,
                               [&](int, int64_t) { files_.size_bytes(path); });
  }

  void measure_streams() {
    const int64_t bytes = out_.file_bytes;
    add_stream("write", [&] {
      return std::pair(bytes, node::write_whole(files_, file_, bytes, options_.check));
    });
    if (has_ceilings()) measure_write_ceiling();
    add_stream("read", [&] {
      if (!out_.is_store && options_.around_cache) drop_cached_file(file_);
      return std::pair(bytes, node::read_whole(files_, file_, options_.check));
    });
    const auto read = [&](int threads, bool apart) {
      const node::ColdFile cold = node::open_cold(files_, file_, options_.around_cache);
      out_.source = cold.source;
      const node::TimedRequests done =
          node::read_deeply(*cold.file, limits(threads), apart, options_.check);
      return std::pair(streamed_bytes(done, bytes), done.elapsed_seconds);
    };
    add_stream("read_many", [&] { return read(options_.readers, true); });
    if (!has_ceilings()) return;
    read_ceiling_ = ceiling([&] {
      const auto [done, seconds] = read(kDeep, false);
      return static_cast<double>(done) / seconds;
    });
    set_ceiling({"read", "read_many"}, read_ceiling_, deep_text("GETs"));
  }

  std::string deep_text(const char* requests) const {
    return out_.is_store ? fmt::format("plain {}, {} at a time", requests, kDeep)
                         : fmt::format("O_DIRECT, {} at a time", kDeep);
  }

  void measure_write_ceiling() {
    write_ceiling_ = ceiling([&] { return out_.is_store ? put_deeply() : overwrite_deeply(); });
    set_ceiling({"write"}, write_ceiling_, deep_text("PUTs"));
  }

  double overwrite_deeply() {
    const DirectFile file(file_, DirectFile::Use::overwrite);
    const node::TimedRequests done = node::overwrite_deeply(file, limits(kDeep), options_.check);
    return static_cast<double>(streamed_bytes(done, out_.file_bytes)) / done.elapsed_seconds;
  }

  // Objects of one request each; beside the measured one no more than half the space.
  double put_deeply() {
    const int64_t objects = out_.file_bytes / node::kStreamBytes;
    const auto name = [&](int64_t n) { return folder_.file(fmt::format("put-{}", n)); };
    const node::TimedRequests done =
        node::time_requests(limits(kDeep, objects), options_.check, [&](int, int64_t index) {
          const auto object = files_.create(name(index));
          object->append(node::incompressible_chunk().data(), node::kStreamBytes);
          object->close();
        });
    const int64_t bytes = streamed_bytes(done, out_.file_bytes);
    const double rate = static_cast<double>(bytes) / done.elapsed_seconds;
    node::time_requests({kDeep, 1e9, static_cast<int64_t>(done.seconds.size())}, {},
                        [&](int, int64_t index) { files_.remove_file(name(index)); });
    return rate;
  }

  void measure_random() {
    const node::ColdFile cold = node::open_cold(files_, file_, options_.around_cache);
    uint64_t seed = 1;
    for (const auto& [name, bytes] : {std::pair<std::string, int64_t>{"random_4k", 4 << 10},
                                      std::pair<std::string, int64_t>{"random_64k", 64 << 10}}) {
      const int64_t size = bytes;
      const auto read = [&](int threads) {
        next_phase();
        return node::read_randomly(*cold.file, size, limits(threads, kMostRandomReads), seed++,
                                   options_.check);
      };
      add_requests(name, size, read(1));
      add_requests(name + "_many", size, read(options_.readers));
      if (out_.is_store) {
        set_ceiling({name}, 1 / out_.round_trip_seconds, "empty requests, one at a time");
      } else if (has_ceilings()) {
        set_ceiling({name, name + "_many"}, read(kDeep).per_second(), deep_text(""));
      }
    }
    if (!out_.is_store) return;
    const node::TimedRequests empty = send_empty(options_.readers, kMostRandomReads);
    set_ceiling({"random_4k_many", "random_64k_many"}, empty.per_second(),
                fmt::format("empty requests, {} at a time", options_.readers));
  }

  void measure_small() {
    next_phase();
    const std::string path = folder_.file("small");
    const auto& chunk = node::incompressible_chunk();
    if (out_.is_store) {
      add_requests(
          "small_write", kSmallBytes,
          node::time_requests(limits(1, kMostSmallWrites), options_.check, [&](int, int64_t) {
            const auto object = files_.create(path);
            object->append(chunk.data(), kSmallBytes);
            object->close();
          }));
      set_ceiling({"small_write"}, 1 / out_.round_trip_seconds, "empty requests, one at a time");
      return;
    }
    const auto journal = files_.create(path);
    add_requests(
        "small_write", kSmallBytes,
        node::time_requests(limits(1, kMostSmallWrites), options_.check, [&](int, int64_t) {
          journal->append(chunk.data(), kSmallBytes);
          journal->sync();
        }));
    journal->close();
    if (!has_ceilings()) return;
    const DirectFile file(path, DirectFile::Use::overwrite);
    const AlignedBytes block = make_aligned_bytes(kSmallBytes);
    std::copy_n(reinterpret_cast<const char*>(chunk.data()), kSmallBytes, block.get());
    const node::TimedRequests in_place =
        node::time_requests(limits(1, kMostSmallWrites), options_.check, [&](int, int64_t) {
          file.write(0, kSmallBytes, block.get());
          file.sync();
        });
    set_ceiling({"small_write"}, in_place.per_second(), "O_DIRECT, the same block again");
  }

  void measure_names() {
    const std::string folder = folder_.file("names");
    files_.create_directories(folder);
    const auto name = [&](int64_t n) { return join_path(folder, fmt::format("{}", n)); };
    const auto each = [&](const char* what, int64_t most,
                          const std::function<void(const std::string&)>& body) -> int64_t {
      next_phase();
      const double begin = monotonic_seconds();
      node::TimedRequests done = node::time_requests(
          limits(1, most), options_.check, [&](int, int64_t index) { body(name(index)); });
      files_.sync_directory(folder);
      done.elapsed_seconds = monotonic_seconds() - begin;
      return add_requests(what, 0, done).requests;
    };
    const int64_t there = each("create", kMostNames, [&](const std::string& path) {
      const auto file = files_.create(path);
      file->append("x", 1);
      file->close();
    });
    each("stat", there, [&](const std::string& path) { files_.size_bytes(path); });
    each("remove", there, [&](const std::string& path) { files_.remove_file(path); });
    if (out_.is_store) {
      set_ceiling({"create", "stat", "remove"}, 1 / out_.round_trip_seconds,
                  "empty requests, one at a time");
    }
  }

  void measure_checkpoint() {
    const double pass_bytes = out_.find("write")->value * kFileShare * options_.seconds;
    const int64_t budget = std::clamp<int64_t>(static_cast<int64_t>(pass_bytes), node::kStreamBytes,
                                               options_.size_bytes / 2);
    CheckpointBench checkpoint(files_, folder_.file("checkpoints"), options_.model, budget,
                               options_.check);
    out_.checkpoint = checkpoint.shape();
    add_stream("checkpoint_save", [&] { return checkpoint.save(); });
    add_stream("checkpoint_load",
               [&] { return checkpoint.load(!out_.is_store && options_.around_cache); });
    if (!has_ceilings()) return;
    set_ceiling({"checkpoint_save"}, write_ceiling_, deep_text("PUTs"));
    set_ceiling({"checkpoint_load"}, read_ceiling_, deep_text("GETs"));
  }

  FileSystem& files_;
  const StorageBenchOptions& options_;
  BenchFolder folder_;
  StorageBench out_;
  std::string file_;
  double write_ceiling_ = 0;
  double read_ceiling_ = 0;
  int64_t phase_ = 0;
};

}  // namespace

const StorageFigure* StorageBench::find(const std::string& name) const {
  for (const StorageFigure& figure : figures) {
    if (figure.name == name) return &figure;
  }
  return nullptr;
}

StorageBench bench_storage(FileSystem& files, const std::string& path,
                           const StorageBenchOptions& options) {
  TUTTI_CHECK(options.size_bytes >= kLeastStorageBytes && options.readers > 0 &&
                  options.repeats > 0 && options.seconds > 0,
              "{} bytes, {} readers, {} repeats, {} s", options.size_bytes, options.readers,
              options.repeats, options.seconds);
  if (object_store(files, path) == nullptr) {
    check_bench_space(files, path, options.size_bytes, options.around_cache);
  }
  return Bench(files, path, options).run();
}

Json to_json(const StorageBench& bench) {
  Json figures = Json::object();
  for (const StorageFigure& figure : bench.figures) {
    Json one = {{"unit", figure.unit},
                {"value", figure.value},
                {"repeats", figure.repeats},
                {"requests", figure.requests},
                {"bytes", figure.bytes},
                {"ceiling", figure.ceiling > 0 ? Json(figure.ceiling) : Json(nullptr)}};
    if (figure.ceiling > 0) {
      one["ceiling_from"] = figure.ceiling_from;
      one["share_of_ceiling"] = figure.value / figure.ceiling;
    }
    if (figure.median_seconds > 0) {
      one["median_seconds"] = figure.median_seconds;
      one["p99_seconds"] = figure.p99_seconds;
    }
    figures[figure.name] = std::move(one);
  }
  const CheckpointShape& checkpoint = bench.checkpoint;
  return {{"path", bench.path},
          {"kind", bench.is_store ? "store" : "disk"},
          {"reads_from", bench.is_store ? "store" : read_source_text(bench.source)},
          {"readers", bench.readers},
          {"file_bytes", bench.file_bytes},
          {"round_trip_seconds", bench.is_store ? Json(bench.round_trip_seconds) : Json(nullptr)},
          {"checkpoint",
           {{"model", checkpoint.model},
            {"state_bytes", checkpoint.state_bytes},
            {"state_tensors", checkpoint.state_tensors},
            {"bytes", checkpoint.bytes},
            {"tensors", checkpoint.tensors}}},
          {"figures", std::move(figures)},
          {"seconds", bench.seconds}};
}

}  // namespace tutti::train
