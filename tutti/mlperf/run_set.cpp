#include "tutti/mlperf/run_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "tutti/base/error.h"
#include "tutti/base/flat_yaml.h"
#include "tutti/base/pretty_json.h"
#include "tutti/mlperf/log.h"
#include "tutti/mlperf/run.h"

namespace tutti::mlperf {
namespace {

constexpr std::array<const char*, 4> kProgressNames = {"planned", "running", "done", "failed"};

RunProgress progress_of(const std::string& name, const std::string& origin) {
  for (size_t i = 0; i < kProgressNames.size(); ++i) {
    if (name == kProgressNames[i]) return static_cast<RunProgress>(i);
  }
  fail(ErrorKind::corrupt, "{}: '{}' is not a run state", origin, name);
}

Json run_json(const SetRun& run) {
  return {{"seed", run.seed},
          {"state", kProgressNames[static_cast<size_t>(run.progress)]},
          {"exit_code", run.exit_code},
          {"started", run.started},
          {"ended", run.ended},
          {"minutes", run.minutes ? Json(*run.minutes) : Json(nullptr)},
          {"reached_target", run.reached_target},
          {"reason", run.reason}};
}

SetRun run_of(const Json& json, const std::string& origin) {
  SetRun run;
  run.seed = json_get<uint64_t>(json, "seed", origin);
  run.progress = progress_of(json_get<std::string>(json, "state", origin), origin);
  run.exit_code = json_get<int>(json, "exit_code", origin);
  run.started = json_get<std::string>(json, "started", origin);
  run.ended = json_get<std::string>(json, "ended", origin);
  if (json.contains("minutes") && json["minutes"].is_number()) run.minutes = json["minutes"];
  run.reached_target = json_get<bool>(json, "reached_target", origin);
  run.reason = json_get<std::string>(json, "reason", origin);
  return run;
}

std::map<std::string, std::string> keys_of(const std::string& yaml) {
  std::map<std::string, std::string> keys;
  for (const auto& [key, value] : flatten_yaml(yaml)) {
    if (key != "train.seed") keys[key] += value + " ";
  }
  return keys;
}

}  // namespace

int64_t RunSet::ended() const {
  return std::count_if(runs.begin(), runs.end(), [](const SetRun& run) {
    return run.progress == RunProgress::done || run.progress == RunProgress::failed;
  });
}

int64_t RunSet::missed() const {
  return std::count_if(runs.begin(), runs.end(), [](const SetRun& run) {
    return run.progress == RunProgress::failed ||
           (run.progress == RunProgress::done && !run.reached_target);
  });
}

RunSet plan_runs(const std::string& recipe_yaml, int64_t runs, uint64_t seed_base) {
  RunSet set;
  set.recipe_yaml = recipe_yaml;
  for (int64_t i = 0; i < runs; ++i) {
    set.runs.emplace_back().seed = seed_base + static_cast<uint64_t>(i);
  }
  return set;
}

std::optional<RunSet> load_run_set(FileSystem& files, const std::string& path) {
  if (!files.exists(path)) return std::nullopt;
  const Json json = parse_json(read_file(files, path), path);
  RunSet set;
  set.recipe_yaml = json_get<std::string>(json, "recipe", path);
  set.executable_hash = json_get<std::string>(json, "executable_hash", path);
  set.version = json_get<std::string>(json, "version", path);
  for (const Json& run : json_get<Json>(json, "runs", path)) set.runs.push_back(run_of(run, path));
  for (const Json& attempt : json_get<Json>(json, "attempts", path)) {
    set.attempts.push_back({json_get<int64_t>(attempt, "run", path),
                            json_get<std::string>(attempt, "folder", path),
                            json_get<std::string>(attempt, "started", path),
                            json_get<std::string>(attempt, "reason", path)});
  }
  return set;
}

void save_run_set(FileSystem& files, const std::string& path, const RunSet& set) {
  write_file_atomic(files, path, pretty_json(to_json(set)));
}

void check_same_set(const RunSet& stored, const RunSet& wanted, const std::string& path) {
  constexpr const char* kRemedy =
      "a set is fixed before its first run: repeat the same command, or start another set with "
      "another --out";
  const auto before = keys_of(stored.recipe_yaml);
  auto now = keys_of(wanted.recipe_yaml);
  for (const auto& [key, value] : before) {
    const std::string other = now.count(key) > 0 ? now[key] : "none";
    if (other != value) {
      fail(ErrorKind::usage, "'{}' was started with {}: {}, not {}; {}", path, key, value, other,
           kRemedy);
    }
  }
  if (now.size() != before.size()) {
    fail(ErrorKind::usage, "'{}' was started with a recipe of other keys; {}", path, kRemedy);
  }
  if (stored.runs.size() != wanted.runs.size()) {
    fail(ErrorKind::usage, "'{}' was started with {} runs, not {}; {}", path, stored.runs.size(),
         wanted.runs.size(), kRemedy);
  }
  for (size_t i = 0; i < stored.runs.size(); ++i) {
    if (stored.runs[i].seed == wanted.runs[i].seed) continue;
    fail(ErrorKind::usage, "run {} of '{}' has seed {}, not {}; {}", i, path, stored.runs[i].seed,
         wanted.runs[i].seed, kRemedy);
  }
  if (stored.executable_hash != wanted.executable_hash) {
    fail(ErrorKind::usage,
         "'{}' was started with another program ({}, executable {}), not {} ({}); {}", path,
         stored.version, stored.executable_hash, wanted.version, wanted.executable_hash, kRemedy);
  }
}

LogOutcome read_outcome(FileSystem& files, const std::string& log) {
  if (!files.exists(log)) return {};
  RunReader reader;
  read_log(files, log,
           {[&](const Record& record) {
              reader.record(record);
              return true;
            },
            {}});
  const Run run = reader.take();
  return {run.minutes(), run.status == "success", run.benchmark};
}

Json to_json(const RunSet& set) {
  Json runs = Json::array();
  for (const SetRun& run : set.runs) runs.push_back(run_json(run));
  Json attempts = Json::array();
  for (const Attempt& attempt : set.attempts) {
    attempts.push_back({{"run", attempt.run},
                        {"folder", attempt.folder},
                        {"started", attempt.started},
                        {"reason", attempt.reason}});
  }
  return {{"version", set.version},
          {"executable_hash", set.executable_hash},
          {"runs", std::move(runs)},
          {"attempts", std::move(attempts)},
          {"recipe", set.recipe_yaml}};
}

}  // namespace tutti::mlperf
