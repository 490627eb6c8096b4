#include "tutti/telemetry/trace.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace tutti::telemetry {
namespace {

Json metadata(const char* kind, int64_t process, int64_t thread, const std::string& name) {
  return {
      {"name", kind}, {"ph", "M"}, {"pid", process}, {"tid", thread}, {"args", {{"name", name}}}};
}

}  // namespace

Trace::Trace(std::string process_name, int64_t process)
    : process_name_(std::move(process_name)), process_(process) {}

void Trace::name_thread(int64_t thread, const std::string& name) {
  const std::lock_guard lock(mutex_);
  thread_names_.push_back({thread, name});
}

void Trace::add(TraceEvent event) {
  const std::lock_guard lock(mutex_);
  events_.push_back(std::move(event));
}

Json Trace::to_json() const {
  const std::lock_guard lock(mutex_);
  Json list = Json::array();
  list.push_back(metadata("process_name", process_, 0, process_name_));
  for (const ThreadName& named : thread_names_) {
    list.push_back(metadata("thread_name", process_, named.thread, named.name));
  }
  double origin = events_.empty() ? 0 : events_.front().begin_seconds;
  for (const TraceEvent& event : events_) origin = std::min(origin, event.begin_seconds);
  for (const TraceEvent& event : events_) {
    // Both ends are rounded (not the duration), so that what nested still does.
    const double begin_ns = std::round((event.begin_seconds - origin) * 1e9);
    const double end_ns = std::round((event.begin_seconds + event.duration_seconds - origin) * 1e9);
    Json entry = {{"name", event.name},
                  {"cat", event.category},
                  {"ph", "X"},
                  {"ts", begin_ns / 1e3},
                  {"dur", (end_ns - begin_ns) / 1e3},
                  {"pid", process_},
                  {"tid", event.thread}};
    if (!event.args.is_null()) entry["args"] = event.args;
    list.push_back(std::move(entry));
  }
  return {{"traceEvents", std::move(list)}, {"displayTimeUnit", "ms"}};
}

void Trace::write(FileSystem& files, const std::string& path) const {
  write_file_atomic(files, path, dump_json(to_json()));
}

}  // namespace tutti::telemetry
