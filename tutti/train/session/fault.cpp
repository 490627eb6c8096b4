#include "tutti/train/session/fault.h"

#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <span>
#include <utility>

#include "tutti/base/clock.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/comm/rendezvous/rank_processes.h"

namespace tutti::train {
namespace {

constexpr std::pair<const char*, FaultKind> kKinds[] = {
    {"kill", FaultKind::kill}, {"stop", FaultKind::stop}, {"hang", FaultKind::hang},
    {"exit", FaultKind::exit}, {"gone", FaultKind::gone}, {"throw", FaultKind::raise},
    {"flip", FaultKind::flip}, {"slow", FaultKind::slow}};

template <typename T>
T number_of(std::string_view key, std::string_view text) {
  T value{};
  const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
  if (result.ec != std::errc() || result.ptr != text.data() + text.size()) {
    fail(ErrorKind::usage, "TUTTI_FAULT: {}={} is not a number", key, text);
  }
  return value;
}

const char* const kTargets[] = {"weights", "gradient", "param", "adamw.m", "adamw.v"};

std::string one_of(std::string_view key, std::string_view text,
                   std::span<const char* const> names) {
  if (std::find(names.begin(), names.end(), text) != names.end()) return std::string(text);
  fail(ErrorKind::usage, "TUTTI_FAULT: {}={}; expected one of {}", key, text,
       join(std::vector<std::string>(names.begin(), names.end()), ", "));
}

FaultKind kind_of(std::string_view text) {
  std::vector<std::string> names;
  for (const auto& [name, kind] : kKinds) {
    if (text == name) return kind;
    names.emplace_back(name);
  }
  fail(ErrorKind::usage, "TUTTI_FAULT: do={}; expected one of {}", text, join(names, ", "));
}

Fault parse_fault(std::string_view text) {
  Fault fault;
  for (const std::string_view word : split(text, ' ')) {
    if (word.empty()) continue;
    const size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    const std::string_view value =
        equals == std::string_view::npos ? std::string_view() : word.substr(equals + 1);
    if (key == "rank") fault.rank = number_of<int64_t>(key, value);
    else if (key == "step") fault.step = number_of<int64_t>(key, value);
    else if (key == "at") fault.at = value;
    else if (key == "do") fault.kind = kind_of(value);
    else if (key == "in") fault.in = one_of(key, value, kTargets);
    else if (key == "seconds") fault.seconds = number_of<double>(key, value);
    else if (key == "generation") fault.generation = number_of<uint64_t>(key, value);
    else fail(ErrorKind::usage, "TUTTI_FAULT: '{}' is not known", word);
  }
  return fault;
}

}  // namespace

std::vector<Fault> parse_faults(const std::string& text) {
  std::vector<Fault> faults;
  for (const std::string_view one : split(text, ';')) faults.push_back(parse_fault(one));
  return faults;
}

std::optional<Fault> requested_fault(int64_t rank, uint64_t generation) {
  const char* text = std::getenv("TUTTI_FAULT");  // NOLINT(concurrency-mt-unsafe)
  if (text == nullptr || *text == 0) return std::nullopt;
  for (const Fault& fault : parse_faults(text)) {
    const bool now = fault.generation == 0 || fault.generation == generation;
    if (fault.rank == rank && now) return fault;
  }
  return std::nullopt;
}

void strike(const Fault& fault, void* byte) {
  switch (fault.kind) {
    case FaultKind::kill: ::raise(SIGKILL); break;
    case FaultKind::stop: ::raise(SIGSTOP); break;
    case FaultKind::hang:
      while (true) sleep_seconds(1);
    case FaultKind::exit: ::_exit(1);
    case FaultKind::gone: ::_exit(comm::kExitRankGone);
    case FaultKind::raise: fail(ErrorKind::io, "a fault that TUTTI_FAULT asked for");
    case FaultKind::flip: *static_cast<unsigned char*>(byte) ^= 0x40; break;
    case FaultKind::slow: sleep_seconds(fault.seconds); break;
  }
}

}  // namespace tutti::train
