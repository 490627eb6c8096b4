#include "tutti/telemetry/events.h"

#include <fmt/format.h>

#include <cmath>
#include <type_traits>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/telemetry/members.h"

namespace tutti::telemetry {
namespace {

Json json_number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

class MemberWriter {
 public:
  template <typename T>
  void value(const char* key, const T& x) {
    out_[key] = x;
  }
  void number(const char* key, double x) { out_[key] = json_number(x); }
  void measured(const char* key, double x) { number(key, x); }
  void nullable(const char* key, const std::optional<double>& x) {
    out_[key] = x ? json_number(*x) : Json(nullptr);
  }
  void maybe(const char* key, const std::optional<double>& x) {
    if (x) number(key, *x);
  }
  void object(const char* key, const Json& x) { out_[key] = x; }
  void any(const char* key, const Json& x) { out_[key] = x; }
  void texts(const char* key, const std::vector<std::string>& list) { out_[key] = list; }
  template <typename T>
  void list(const char* key, const std::vector<T>& list) {
    Json items = Json::array();
    for (const T& item : list) items.push_back(written(item));
    out_[key] = std::move(items);
  }
  template <typename T>
  void inner(const char* key, const std::optional<T>& x) {
    if (x) out_[key] = written(*x);
  }
  template <typename T>
  void beside(const std::optional<T>& x) {
    if (x) members(*this, *x);
  }
  template <typename Enum, typename Names>
  void choice(const char* key, Enum x, const Names& names) {
    for (const auto& [name, value] : names) {
      if (value == x) out_[key] = name;
    }
  }

  explicit MemberWriter(Json& out) : out_(out) {}

 private:
  template <typename T>
  static Json written(const T& x) {
    Json object = Json::object();
    MemberWriter writer(object);
    members(writer, x);
    return object;
  }

  Json& out_;
};

}  // namespace

std::string text_of(const EventsLost& gap) {
  return fmt::format("{} events are missing, of steps {} to {}: {}", gap.events, gap.first_step,
                     gap.last_step, gap.cause);
}

const char* event_name(const Event& event) {
  return std::visit([](const auto& body) { return kEventName<std::decay_t<decltype(body)>>; },
                    event.body);
}

Json to_json(const Event& event) {
  Json out = Json::object();
  out["event"] = event_name(event);
  out["time"] = format_utc(event.wall_seconds);
  out["wall_seconds"] = std::round(event.wall_seconds * 1e3) / 1e3;
  MemberWriter writer(out);
  std::visit([&](const auto& body) { members(writer, body); }, event.body);
  return out;
}

}  // namespace tutti::telemetry
