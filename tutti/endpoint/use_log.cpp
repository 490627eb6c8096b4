#include "tutti/endpoint/use_log.h"

#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/json.h"
#include "tutti/base/text.h"

namespace tutti::endpoint {
namespace {

Json line_json(const UseRecord& record) {
  return {{"time_ms", record.time_ms},
          {"key", record.key},
          {"name", record.name},
          {"model", record.model},
          {"request", record.request},
          {"prompt_tokens", record.use.prompt_tokens},
          {"cached_tokens", record.use.cached_tokens},
          {"answer_tokens", record.use.answer_tokens},
          {"pico_usd", record.use.pico_usd}};
}

UseRecord record_from(const Json& json, const std::string& path) {
  const auto text = [&](const char* key) { return json_get<std::string>(json, key, path); };
  const auto number = [&](const char* key) { return json_get<int64_t>(json, key, path); };
  UseRecord record;
  record.time_ms = number("time_ms");
  record.key = text("key");
  record.name = text("name");
  record.model = text("model");
  record.request = text("request");
  record.use = {1, number("prompt_tokens"), number("cached_tokens"), number("answer_tokens"),
                number("pico_usd")};
  return record;
}

}  // namespace

int64_t read_use_log(FileSystem& files, const std::string& path,
                     const std::function<void(const UseRecord&)>& take) {
  if (!files.exists(path) || files.size_bytes(path) == 0) return 0;
  const auto file = files.map(path);
  int64_t damaged = 0;
  for (const std::string_view line : split(file->bytes(), '\n')) {
    if (line.empty()) continue;
    UseRecord record;
    try {
      record = record_from(parse_json(std::string(line), path), path);
    } catch (const Error&) {
      ++damaged;
      continue;
    }
    take(record);
  }
  return damaged;
}

UseLog::UseLog(FileSystem& files, const std::string& path) {
  if (files.exists(path) && files.size_bytes(path) > 0) {
    is_torn_ = files.map(path)->bytes().back() != '\n';
  }
  file_ = files.open_append(path);
  files.sync_directory(parent_path(path));
}

void UseLog::add(const UseRecord& record) {
  const std::scoped_lock lock(mutex_);
  pending_ += dump_json(line_json(record)) + "\n";
  write_pending();
}

void UseLog::write_pending() {
  if (pending_.empty()) return;
  try {
    const std::string text = (is_torn_ ? "\n" : "") + pending_;
    file_->append(text.data(), text.size());
    is_torn_ = false;
    is_dirty_ = true;
    pending_.clear();
    problem_.clear();
  } catch (const Error& error) {
    // A part of it may be in the file.
    is_torn_ = true;
    problem_ = error.what();
  }
}

bool UseLog::is_kept(std::string& problem) {
  const std::scoped_lock lock(mutex_);
  write_pending();
  problem = problem_;
  return pending_.empty();
}

void UseLog::sync() {
  {
    const std::scoped_lock lock(mutex_);
    write_pending();
    if (!std::exchange(is_dirty_, false)) return;
  }
  try {
    file_->sync();  // without the lock: lines are added meanwhile
  } catch (const Error&) {
    const std::scoped_lock lock(mutex_);
    is_dirty_ = true;
  }
}

}  // namespace tutti::endpoint
