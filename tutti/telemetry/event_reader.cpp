#include "tutti/telemetry/event_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "tutti/telemetry/members.h"

namespace tutti::telemetry {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Members of one line; anything that is not as expected is as if it were absent.
class MemberReader {
 public:
  explicit MemberReader(const Json& json) : json_(json) {}

  void value(const char* key, std::string& x) {
    const Json* found = find(key);
    if (found != nullptr && found->is_string()) x = found->get<std::string>();
  }
  void value(const char* key, bool& x) {
    const Json* found = find(key);
    if (found != nullptr && found->is_boolean()) x = found->get<bool>();
  }
  // Through double where it was written as one; numbers outside int64 are not taken.
  void value(const char* key, int64_t& x) {
    const Json* found = find(key);
    if (found == nullptr) return;
    const bool too_large = found->is_number_unsigned() &&
                           found->get<uint64_t>() > uint64_t{std::numeric_limits<int64_t>::max()};
    if (found->is_number_integer() && !too_large) x = found->get<int64_t>();
    if (found->is_number_float() && std::abs(found->get<double>()) < 9e18) {
      x = static_cast<int64_t>(found->get<double>());
    }
  }
  void number(const char* key, double& x) {
    const Json* found = find(key);
    if (found != nullptr && found->is_number()) {
      x = found->get<double>();
      ++numbers_;
    }
  }
  void measured(const char* key, double& x) {
    x = kNone;
    number(key, x);
  }
  void nullable(const char* key, std::optional<double>& x) { maybe(key, x); }
  void maybe(const char* key, std::optional<double>& x) {
    const Json* found = find(key);
    if (found != nullptr && found->is_number()) x = found->get<double>();
  }
  void object(const char* key, Json& x) {
    const Json* found = find(key);
    if (found != nullptr && found->is_object()) x = *found;
  }
  void any(const char* key, Json& x) {
    if (const Json* found = find(key)) x = *found;
  }
  void texts(const char* key, std::vector<std::string>& list) {
    for (const Json& item : array(key)) {
      if (item.is_string()) list.push_back(item.get<std::string>());
    }
  }
  template <typename T>
  void list(const char* key, std::vector<T>& list) {
    for (const Json& item : array(key)) {
      if (item.is_object()) list.push_back(read<T>(item));
    }
  }
  template <typename T>
  void inner(const char* key, std::optional<T>& x) {
    const Json* found = find(key);
    if (found != nullptr && found->is_object()) x = read<T>(*found);
  }
  // There where any of its numbers is.
  template <typename T>
  void beside(std::optional<T>& x) {
    MemberReader reader(json_);
    T value;
    members(reader, value);
    if (reader.numbers_ > 0) x = std::move(value);
  }
  template <typename Enum, typename Names>
  void choice(const char* key, Enum& x, const Names& names) {
    std::string text;
    value(key, text);
    for (const auto& [name, value] : names) {
      if (text == name) x = value;
    }
  }

  template <typename T>
  static T read(const Json& object) {
    MemberReader reader(object);
    T value;
    members(reader, value);
    return value;
  }

 private:
  const Json* find(const char* key) const {
    const auto found = json_.find(key);
    return found == json_.end() ? nullptr : &*found;
  }
  const Json& array(const char* key) const {
    static const Json none = Json::array();
    const Json* found = find(key);
    return found != nullptr && found->is_array() ? *found : none;
  }

  const Json& json_;
  int numbers_ = 0;
};

using Body = decltype(Event::body);

// The event whose name it is; none: a name that this version does not know.
template <size_t I = 0>
std::optional<Body> read_body(std::string_view name, const Json& line) {
  if constexpr (I == std::variant_size_v<Body>) {
    return std::nullopt;
  } else {
    using T = std::variant_alternative_t<I, Body>;
    if (name == kEventName<T>) return MemberReader::read<T>(line);
    return read_body<I + 1>(name, line);
  }
}

}  // namespace

CorpusSource corpus_source_from_json(const Json& object) {
  return MemberReader::read<CorpusSource>(object);
}

std::optional<Event> event_from_json(const Json& line) {
  if (!line.is_object()) return std::nullopt;
  MemberReader in(line);
  std::string name;
  in.value("event", name);
  auto body = read_body(name, line);
  if (!body) return std::nullopt;
  Event event{0, std::move(*body)};
  in.number("wall_seconds", event.wall_seconds);
  return event;
}

ReadCount read_events(FileSystem& files, const std::string& path,
                      const std::function<void(const Event&)>& on_event,
                      const std::function<void(int64_t, int64_t)>& on_progress) {
  constexpr size_t kBytesBetweenProgress = size_t{1} << 20;
  ReadCount count;
  const auto file = files.map(path);
  const std::string_view bytes = file->bytes();
  size_t reported_bytes = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t end = std::min(bytes.find('\n', at), bytes.size());
    const std::string_view line = bytes.substr(at, end - at);
    const bool last = end == bytes.size();
    at = end + 1;
    if (on_progress && at - reported_bytes >= kBytesBetweenProgress) {
      reported_bytes = at;
      on_progress(static_cast<int64_t>(at), static_cast<int64_t>(bytes.size()));
    }
    if (line.empty()) continue;
    const Json json = Json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!json.is_object()) {
      ++count.unreadable;
      count.last_line_cut = last;
      continue;
    }
    if (const std::optional<Event> event = event_from_json(json)) {
      ++count.events;
      on_event(*event);
    } else {
      ++count.unknown;
    }
  }
  return count;
}

}  // namespace tutti::telemetry
