// Helpers of the telemetry tests.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tutti/telemetry/sink.h"
#include "tutti/telemetry/sinks/console.h"

namespace tutti::telemetry::testing {

// A console whose output is kept.
struct Screen {
  std::shared_ptr<std::string> text = std::make_shared<std::string>();
  Console console(bool terminal, int columns = 80, bool color = false) const {
    return {terminal, color, [columns] { return columns; },
            [kept = text](std::string_view more) { kept->append(more); }};
  }
  std::string take() const { return std::exchange(*text, {}); }
};

// Keeps the events it is given.
class KeepingSink final : public Sink {
 public:
  explicit KeepingSink(std::shared_ptr<std::vector<Event>> events) : events_(std::move(events)) {}
  void write(const Event& event) override { events_->push_back(event); }

 private:
  std::shared_ptr<std::vector<Event>> events_;
};

}  // namespace tutti::telemetry::testing
