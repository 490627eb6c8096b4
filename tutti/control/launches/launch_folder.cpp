#include "tutti/control/launches/launch_folder.h"

#include <fmt/format.h>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/text.h"

namespace tutti::control {

std::string launch_name(const LaunchKey& key) {
  return fmt::format("{}-{}-{}", key.job, key.stamp, key.generation);
}

std::string job_folder(const std::string& jobs_folder, int64_t job, int64_t stamp) {
  return join_path(jobs_folder, fmt::format("{}-{}", job, stamp));
}

int64_t steady_milliseconds() { return static_cast<int64_t>(monotonic_seconds() * 1000); }

std::string LaunchFolder::file(const char* what, int64_t generation) const {
  return join_path(folder_, fmt::format("{}-{}", what, generation));
}

void LaunchFolder::touch(const char* what, int64_t generation) {
  if (has(what, generation)) return;
  files_.create_directories(folder_);
  write_file_atomic(files_, file(what, generation), "");
}

int64_t LaunchFolder::newest() const {
  const std::string path = join_path(folder_, "newest");
  if (!files_.exists(path)) return 0;
  return json_get<int64_t>(parse_json(read_file(files_, path), path), "generation", path);
}

void LaunchFolder::set_newest(int64_t generation) {
  write_file_atomic(files_, join_path(folder_, "newest"),
                    dump_json({{"generation", generation}}) + "\n");
}

void LaunchFolder::write_order(const LaunchOrder& order) {
  Json json = {{"command", order.command},
               {"folder", order.folder},
               {"job", order.key.job},
               {"stamp", order.key.stamp},
               {"cores", order.claims.empty() ? 0 : order.claims.front().cores},
               {"nodes", order.claims.size()},
               {"stop_after_ms", order.stop_after_ms},
               {"grace_ms", order.grace_ms}};
  if (order.health) json["health"] = to_json(*order.health);
  write_file_atomic(files_, file("order", order.key.generation), dump_json(json) + "\n");
}

LaunchOrder LaunchFolder::read_order(int64_t generation) const {
  const std::string path = file("order", generation);
  const Json json = parse_json(read_file(files_, path), path);
  LaunchOrder order;
  order.key = {json_get<int64_t>(json, "job", path), json_get<int64_t>(json, "stamp", path),
               generation};
  order.command = json_get<std::vector<std::string>>(json, "command", path);
  order.folder = json_get<std::string>(json, "folder", path);
  order.stop_after_ms = json_get<int64_t>(json, "stop_after_ms", path);
  order.grace_ms = json_get<int64_t>(json, "grace_ms", path);
  if (json.contains("health")) order.health = health_rule_from_json(json.at("health"), path);
  Claim claim;
  claim.cores = json_get<int64_t>(json, "cores", path);
  order.claims.assign(json_get<size_t>(json, "nodes", path), claim);
  return order;
}

void LaunchFolder::write_begun(int64_t generation, const Begun& begun) {
  const Json json = {
      {"process", begun.process}, {"boot", begun.boot}, {"steady_ms", begun.steady_ms}};
  write_file_atomic(files_, file("begun", generation), dump_json(json) + "\n");
}

std::optional<Begun> LaunchFolder::read_begun(int64_t generation) const {
  const std::string path = file("begun", generation);
  if (!files_.exists(path)) return std::nullopt;
  const Json json = parse_json(read_file(files_, path), path);
  return Begun{json_get<int>(json, "process", path), json_get<std::string>(json, "boot", path),
               json_get<int64_t>(json, "steady_ms", path)};
}

void LaunchFolder::write_ended(int64_t generation, const Ended& ended) {
  Json json = {{"elapsed_ms", ended.elapsed_ms}, {"detail", ended.detail}};
  if (ended.exit_code) json["exit_code"] = *ended.exit_code;
  if (ended.measured_micro_kwh) json["measured_micro_kwh"] = *ended.measured_micro_kwh;
  write_file_atomic(files_, file("ended", generation), dump_json(json) + "\n");
}

std::optional<Ended> LaunchFolder::read_ended(int64_t generation) const {
  const std::string path = file("ended", generation);
  if (!files_.exists(path)) return std::nullopt;
  const Json json = parse_json(read_file(files_, path), path);
  Ended ended;
  ended.elapsed_ms = json_get<int64_t>(json, "elapsed_ms", path);
  ended.detail = json_get<std::string>(json, "detail", path);
  if (json.contains("exit_code")) ended.exit_code = json_get<int>(json, "exit_code", path);
  if (json.contains("measured_micro_kwh")) {
    ended.measured_micro_kwh = json_get<int64_t>(json, "measured_micro_kwh", path);
  }
  return ended;
}

bool LaunchFolder::take_ended(int64_t generation, LaunchStatus& status) const {
  const std::optional<Ended> ended = read_ended(generation);
  if (!ended) return false;
  status.phase = ended->exit_code ? LaunchPhase::ended : LaunchPhase::failed;
  status.exit_code = ended->exit_code;
  status.elapsed_ms = ended->elapsed_ms;
  status.measured_micro_kwh = ended->measured_micro_kwh;
  status.detail = ended->detail;
  return true;
}

void LaunchFolder::write_alive(int64_t generation, int64_t elapsed_ms) {
  write_file_atomic(files_, file("alive", generation),
                    dump_json({{"elapsed_ms", elapsed_ms}}) + "\n");
}

int64_t LaunchFolder::read_alive(int64_t generation) const {
  const std::string path = file("alive", generation);
  if (!files_.exists(path)) return 0;
  return json_get<int64_t>(parse_json(read_file(files_, path), path), "elapsed_ms", path);
}

void LaunchFolder::write_health(int64_t generation, const Health& health) {
  const Json json = {{"state", health.state}, {"url", health.url}, {"detail", health.detail}};
  write_file_atomic(files_, file("health", generation), dump_json(json) + "\n");
}

std::optional<Health> LaunchFolder::read_health(int64_t generation) const {
  const std::string path = file("health", generation);
  if (!files_.exists(path)) return std::nullopt;
  const Json json = parse_json(read_file(files_, path), path);
  return Health{json_get<std::string>(json, "state", path),
                json_get<std::string>(json, "url", path),
                json_get<std::string>(json, "detail", path)};
}

void LaunchFolder::write_outside(int64_t generation, const std::string& number) {
  write_file_atomic(files_, file("outside", generation), number + "\n");
}

std::string LaunchFolder::read_outside(int64_t generation) const {
  const std::string path = file("outside", generation);
  return files_.exists(path) ? std::string(trim(read_file(files_, path))) : std::string();
}

}  // namespace tutti::control
