#include "tutti/mlperf/check_log.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>

#include "tutti/base/text.h"
#include "tutti/mlperf/value_rule.h"

namespace tutti::mlperf {
namespace {

using ReadLog = std::function<LogSize(const LogVisitor&)>;

// What the first submission_division and submission_benchmark say; rules depend on them wherever
// in the log they are.
struct Submission {
  std::optional<std::string> division;
  std::optional<std::string> benchmark;
};

std::string shown(const Json& value) {
  constexpr size_t kMost = 80;
  std::string text = value.is_number_float() ? fmt::format("{}", value.get<double>())
                                             : printable(dump_json(value));
  if (text.size() > kMost) text = text.substr(0, kMost) + "...";
  return text;
}

Submission find_submission(const ReadLog& read) {
  Submission submission;
  const auto take = [](std::optional<std::string>& to, const Json& value) {
    if (!to) to = value.is_string() ? value.get<std::string>() : shown(value);
  };
  read({[&](const Record& record) {
          if (record.key == "submission_division") take(submission.division, record.value);
          if (record.key == "submission_benchmark") take(submission.benchmark, record.value);
          return !submission.division || !submission.benchmark;
        },
        {}});
  return submission;
}

// Logged in pairs of alternatives: one of the two must be there.
constexpr std::array<std::pair<const char*, const char*>, 4> kAlternatives = {{
    {"block_start", "epoch_start"},
    {"block_stop", "epoch_stop"},
    {"eval_start", "block_start"},
    {"eval_stop", "block_stop"},
}};

class LogChecker {
 public:
  LogChecker(const Ruleset& ruleset, const Submission& submission, Findings& findings)
      : ruleset_(ruleset), submission_(submission), findings_(findings) {
    for (const KeyRule& rule : ruleset.common) add_rule(rule);
    if (submission.division && submission.benchmark) {
      if (const auto* rules = find_rules(ruleset, *submission.benchmark, *submission.division)) {
        for (const KeyRule& rule : rules->keys) add_rule(rule);
      }
    }
  }

  void record(const Record& record);
  void problem(const LogProblem& problem);
  void finish(const LogSize& size);

 private:
  struct State {
    KeyRule rule;
    int64_t count = 0;
    int64_t first_line = 0;
    int64_t last_line = 0;
    Json first_value;
    bool all_same = true;
    bool reached = false;  // Test::target
  };

  void add_rule(const KeyRule& rule) {
    const auto found = index_.find(rule.key);
    if (found != index_.end()) {
      states_[found->second].rule = rule;
      return;
    }
    index_[rule.key] = states_.size();
    states_.push_back({rule, 0, 0, 0, {}, true, false});
  }

  const State* state(const std::string& key) const {
    const auto found = index_.find(key);
    return found == index_.end() ? nullptr : &states_[found->second];
  }
  bool seen(const std::string& key) const {
    const State* found = state(key);
    return found != nullptr && found->count > 0;
  }

  void check_value(State& state, const Record& record);
  void check_needs(const KeyRule& rule, const Record& record);
  void check_first_evaluation(const KeyRule& rule, const Record& record);
  void check_metadata(const KeyRule& rule, const Record& record);
  void check_block_start(const Record& record);
  void check_order(const Record& record);
  void check_init_time(const Record& record);
  void check_benchmark();
  void check_count(const State& state);

  const Ruleset& ruleset_;
  const Submission& submission_;
  Findings& findings_;
  std::vector<State> states_;
  std::unordered_map<std::string, size_t> index_;
  RuleContext context_;
  double init_start_ms_ = 9e99;
  double allowed_init_minutes_ = 0;
  std::optional<double> run_start_ms_;
  int64_t last_problem_line_ = 0;
};

void LogChecker::record(const Record& record) {
  if (record.latin1) {
    findings_.warning(record.line, "log.encoding", "bytes that are not UTF-8, read as Latin-1",
                      "write logs in UTF-8");
  }
  if (record.no_metadata) {
    findings_.warning(record.line, "log.metadata",
                      fmt::format("metadata of {} is not an object: read as empty", record.key),
                      "log metadata as a JSON object, such as {}");
  }
  const bool name = record.key == "submission_org" || record.key == "submission_platform";
  if (name && is_placeholder(record.value)) {
    findings_.warning(record.line, "key.placeholder",
                      fmt::format("{} is {}", record.key, shown(record.value)),
                      "log the name of the submitter and of the system");
  }
  const auto found = index_.find(record.key);
  if (found == index_.end()) return;  // unknown keys are legal
  State& state = states_[found->second];
  const bool checked = state.count == 0 || !starts_with(record.key, "submission_");
  if (state.count++ == 0) {
    state.first_line = record.line;
    state.first_value = record.value;
  } else {
    state.all_same = state.all_same && state.first_value == record.value;
  }
  state.last_line = record.line;
  if (!checked) return;
  check_order(record);
  check_metadata(state.rule, record);
  check_value(state, record);
  if (record.key == "submission_division" && record.value.is_string()) {
    allowed_init_minutes_ = allowed_init_minutes(record.value.get<std::string>());
  }
  if (record.key == "global_batch_size") context_.global_batch = as_number(record.value);
  if (record.key == "opt_learning_rate_warmup_steps") {
    context_.warmup_steps = as_number(record.value);
  }
}

void LogChecker::problem(const LogProblem& problem) {
  last_problem_line_ = problem.line;
  findings_.error(problem.line, "log.record", "unreadable record: " + problem.message,
                  "write one JSON object with time_ms, key, value and metadata after ':::MLLOG '");
}

void LogChecker::check_value(State& state, const Record& record) {
  const KeyRule& rule = state.rule;
  const std::string wanted = wanted_instead(rule, record.value, context_);
  if (!wanted.empty()) {
    findings_.error(record.line, "key.value",
                    fmt::format("{} is {}", record.key, shown(record.value)),
                    fmt::format("ruleset {} accepts {}", ruleset_.version, wanted));
  }
  check_needs(rule, record);
  if (rule.key != "eval_accuracy") return;
  if (state.count == 1) check_first_evaluation(rule, record);
  state.reached = state.reached || reaches_target(rule, record.value);
  const auto number = as_number(record.value);
  // What cannot be compared with the target ends the official checker; NaN only misses it.
  if (rule.test == Test::target && !number && !record.value.is_boolean()) {
    findings_.error(record.line, "key.value",
                    fmt::format("evaluation result is {}", shown(record.value)), "log a number");
  } else if (!number || !std::isfinite(*number)) {
    findings_.warning(record.line, "target.not_finite",
                      fmt::format("evaluation result is {}", shown(record.value)),
                      "a run that diverged does not count; log finite numbers");
  }
}

void LogChecker::check_needs(const KeyRule& rule, const Record& record) {
  if (!rule.needs.empty() && !seen(rule.needs)) {
    findings_.error(record.line, "order.needs",
                    fmt::format("{} comes before {}, which its rule needs", record.key, rule.needs),
                    fmt::format("log {} earlier", rule.needs));
    return;
  }
  const std::string lacking = lacks_number(rule, context_);
  if (lacking.empty() || !seen(lacking)) return;
  findings_.error(record.line, "key.value",
                  fmt::format("{} cannot be tested: {} is not a number", record.key, lacking),
                  fmt::format("log {} as a number", lacking));
}

// The checker reads the count as an integer: text of digits counts, a fraction is cut off.
void LogChecker::check_first_evaluation(const KeyRule& rule, const Record& record) {
  const auto wanted = first_samples_count(rule, context_);
  if (!wanted) return;
  const auto found = record.metadata.find("samples_count");
  const auto count = found == record.metadata.end() ? std::nullopt : as_integer(*found);
  if (count && static_cast<double>(*count) == *wanted) return;
  findings_.error(record.line, "order.first_evaluation",
                  fmt::format("the first evaluation is at samples_count {}",
                              found == record.metadata.end() ? "none" : shown(*found)),
                  fmt::format("evaluate first at {:.0f} samples, the batch times floor({:g} + "
                              "{:g} / batch)",
                              *wanted, rule.first_steps, rule.first_samples));
}

void LogChecker::check_metadata(const KeyRule& rule, const Record& record) {
  const auto has = [&](const std::string& member) { return record.metadata.contains(member); };
  if (!rule.metadata.empty() && std::none_of(rule.metadata.begin(), rule.metadata.end(), has)) {
    findings_.error(
        record.line, "key.metadata",
        fmt::format("metadata of {} has no {}", record.key, join(rule.metadata, " or ")),
        fmt::format("log {} with metadata {}", record.key, join(rule.metadata, " or ")));
  }
  if (record.key == "block_start") check_block_start(record);
}

void LogChecker::check_block_start(const Record& record) {
  const auto member = [&](const std::string& name) {
    const auto found = record.metadata.find(name);
    return found == record.metadata.end() ? nullptr : &*found;
  };
  const auto bad = [&](const std::string& name, const char* wanted) {
    findings_.error(record.line, "key.metadata",
                    fmt::format("metadata {} of block_start is {}", name,
                                member(name) == nullptr ? "missing" : shown(*member(name))),
                    fmt::format("log {}: {}", name, wanted));
  };
  if (const Json* epochs = member("epoch_count")) {
    if (member("first_epoch_num") == nullptr) bad("first_epoch_num", "where the block starts");
    const auto number = as_number(*epochs);
    if (!number || !(*number > 0)) bad("epoch_count", "a number above 0");
  }
  if (ruleset_.block_count.empty()) return;
  if (const Json* count = member(ruleset_.block_count)) {
    const auto number = as_number(*count);
    if (!number || !(*number >= 0)) bad(ruleset_.block_count, "a number from 0");
  }
}

void LogChecker::check_order(const Record& record) {
  const auto must = [&](bool right, const char* message, const char* remedy) {
    if (right) return;
    findings_.error(record.line, "order.sequence", fmt::format("{} {}", record.key, message),
                    remedy);
  };
  constexpr const char* kOrder =
      "the order is init_start, init_stop, run_start, blocks and evaluations, run_stop";
  if (record.key == "init_start") {
    must(!seen("init_stop"), "after init_stop", kOrder);
    must(!seen("run_start"), "after run_start", kOrder);
    init_start_ms_ = std::min(init_start_ms_, record.time_ms);
  } else if (record.key == "init_stop") {
    must(seen("init_start"), "before init_start", kOrder);
    must(!seen("run_start"), "after run_start", kOrder);
    if (seen("init_start")) check_init_time(record);
  } else if (record.key == "run_start") {
    must(seen("init_stop"), "before init_stop", kOrder);
    run_start_ms_ = run_start_ms_.value_or(record.time_ms);
  } else if (record.key == "block_start") {
    must(seen("run_start"), "before run_start", kOrder);
  } else if (record.key == "run_stop") {
    must(seen("run_start"), "before run_start", kOrder);
    must(!run_start_ms_ || record.time_ms >= *run_start_ms_, "has an earlier time than run_start",
         "clocks of one run must agree");
  }
}

void LogChecker::check_init_time(const Record& record) {
  const double minutes = (record.time_ms - init_start_ms_) / 60e3;
  if (minutes < allowed_init_minutes_) return;
  const std::string message =
      allowed_init_minutes_ > 0
          ? fmt::format("initialisation took {:.1f} minutes, allowed are less than {}", minutes,
                        allowed_init_minutes_)
          : "init_stop comes before submission_division, which says how long it may take";
  findings_.error(record.line, "order.init_time", message,
                  "start the clock (run_start) earlier, or log submission_division first");
}

void LogChecker::check_benchmark() {
  if (!submission_.division || !submission_.benchmark) return;
  const std::string& division = *submission_.division;
  const std::string& benchmark = *submission_.benchmark;
  if (division != "closed" && division != "open") return;
  const auto& accepted =
      division == "closed" ? ruleset_.closed_benchmarks : ruleset_.open_benchmarks;
  const int64_t line = state("submission_benchmark")->first_line;
  if (std::find(accepted.begin(), accepted.end(), benchmark) == accepted.end()) {
    findings_.error(line, "benchmark.unknown",
                    fmt::format("'{}' is not a benchmark of ruleset {} ({})", benchmark,
                                ruleset_.version, division),
                    "known: " + join(accepted, ", "));
  } else if (find_rules(ruleset_, benchmark, division) == nullptr) {
    findings_.error(
        line, "benchmark.not_covered",
        fmt::format("the {} rules of '{}' are not built in", division, benchmark),
        "only gpt3, llama31_405b, llama31_8b, llama2_70b_lora, gpt_oss_20b, deepseekv3_671b and "
        "tutti_mini are checked");
  }
}

void LogChecker::check_count(const State& state) {
  const KeyRule& rule = state.rule;
  if (rule.occurs == Occurs::any) return;
  if (state.count == 0) {
    findings_.error(0, "key.missing", fmt::format("no record of {}", rule.key),
                    fmt::format("log {} {}", rule.key,
                                rule.occurs == Occurs::exactly_one ? "once" : "at least once"));
    return;
  }
  if (rule.occurs == Occurs::exactly_one && state.count > 1) {
    const std::string message =
        fmt::format("{} records of {}, first in line {}", state.count, rule.key, state.first_line);
    const bool event = rule.key == "init_stop" || rule.key == "run_start" || rule.key == "run_stop";
    if (state.all_same && !event) {
      findings_.warning(state.last_line, "key.repeated", message, "log it once");
    } else {
      findings_.error(state.last_line, "key.repeated",
                      message + (event ? "" : ", with different values"), "log it once");
    }
  }
  if (rule.test == Test::target && !state.reached) {
    findings_.error(state.last_line, "target.not_reached",
                    fmt::format("no one of {} evaluations is above {} and at most {}", state.count,
                                rule.above, rule.at_most),
                    "the run did not converge: it cannot be scored");
  }
}

void LogChecker::finish(const LogSize& size) {
  if (size.cut && last_problem_line_ == size.lines) {
    findings_.error(size.lines, "log.cut", "the file ends inside a record",
                    "copy the whole log again");
  }
  if (size.records == 0) {
    findings_.error(0, "log.empty", "no MLPerf records", "log lines start with ':::MLLOG '");
    return;
  }
  check_benchmark();
  for (const State& state : states_) check_count(state);
  for (const auto& [one, other] : kAlternatives) {
    if (seen(one) || seen(other)) continue;
    findings_.error(0, "key.missing", fmt::format("no record of {} or {}", one, other),
                    fmt::format("log {} or {}", one, other));
  }
}

LogCheck check(const ReadLog& read, const std::string& name, const Ruleset& ruleset) {
  const Submission submission = find_submission(read);
  Findings findings(name);
  LogChecker checker(ruleset, submission, findings);
  RunReader reader;
  const LogSize size = read({[&](const Record& record) {
                               checker.record(record);
                               reader.record(record);
                               return true;
                             },
                             [&](const LogProblem& problem) { checker.problem(problem); }});
  checker.finish(size);
  LogCheck result;
  result.findings = findings.take();
  result.run = reader.take();
  result.compliant = compliant(result.findings);
  return result;
}

}  // namespace

LogCheck check_log(FileSystem& files, const std::string& path, const Ruleset& ruleset) {
  return check([&](const LogVisitor& visitor) { return read_log(files, path, visitor); }, path,
               ruleset);
}

LogCheck check_log_text(std::string_view text, const std::string& name, const Ruleset& ruleset) {
  return check([&](const LogVisitor& visitor) { return read_log_text(text, visitor); }, name,
               ruleset);
}

}  // namespace tutti::mlperf
