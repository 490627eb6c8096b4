// A synthetic log of a good run, line by line, for tests that damage it; the catalog's benchmarks.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "tutti/base/json.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/catalog/benchmarks.h"
#include "tutti/mlperf/finding.h"
#include "tutti/mlperf/record.h"
#include "tutti_test_paths.h"

namespace tutti::mlperf {

struct LogLine {
  std::string key;
  Json value;
  Json metadata = Json::object();
  double time_ms = 0;
};

class SyntheticLog {
 public:
  std::vector<LogLine> lines;

  LogLine& at(const std::string& key, int occurrence = 0) { return lines[index(key, occurrence)]; }
  size_t index(const std::string& key, int occurrence = 0) const {
    for (size_t i = 0; i < lines.size(); ++i) {
      if (lines[i].key == key && occurrence-- == 0) return i;
    }
    return lines.size();
  }
  void erase(const std::string& key, int occurrence = 0) {
    lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(index(key, occurrence)));
  }
  void repeat(const std::string& key) { lines.insert(lines.begin() + index_of(key) + 1, at(key)); }
  void swap(const std::string& a, const std::string& b) {
    std::swap(lines[index(a)], lines[index(b)]);
  }

  std::string text() const {
    std::string out;
    for (const LogLine& line : lines) out += record_text(line) + "\n";
    return out;
  }
  static std::string record_text(const LogLine& line) {
    return std::string(kRecordPrefix) + dump_json({{"namespace", ""},
                                                   {"time_ms", static_cast<int64_t>(line.time_ms)},
                                                   {"event_type", "POINT_IN_TIME"},
                                                   {"key", line.key},
                                                   {"value", line.value},
                                                   {"metadata", line.metadata}});
  }

 private:
  std::ptrdiff_t index_of(const std::string& key) const {
    return static_cast<std::ptrdiff_t>(index(key));
  }
};

struct SyntheticRun {
  std::string benchmark = "llama31_8b";
  int64_t seed = 1;
  double samples_to_target = 172'032;  // a multiple of 12,288
  double global_batch = 32;
  double seconds_per_sample = 0.01;
  double eval_seconds = 5;
};

// Complies with 5.1.0 and 6.0.0 (llama31_8b, llama31_405b, llama2_70b_lora), 6.0.0 (gpt_oss_20b,
// deepseekv3_671b) or 4.1.0 (gpt3).
inline SyntheticLog good_log(const SyntheticRun& run = {}) {
  SyntheticLog log;
  double time_ms = 1.7e12;
  int line = 10;
  const auto add = [&](const std::string& key, Json value, Json metadata = Json::object()) {
    metadata["file"] = "train.py";
    metadata["lineno"] = line++;
    log.lines.push_back({key, std::move(value), std::move(metadata), time_ms});
    time_ms += 1;
  };
  const bool gpt3 = run.benchmark == "gpt3";
  const bool lora = run.benchmark == "llama2_70b_lora";
  const bool large = run.benchmark == "llama31_405b";
  const bool deepseek = run.benchmark == "deepseekv3_671b";
  const std::string adam = gpt3 ? "adam" : "adamw";
  add("cache_clear", true);
  add("init_start", nullptr);
  add("submission_benchmark", run.benchmark);
  add("submission_org", "Example");
  add("submission_division", "closed");
  if (gpt3) add("submission_status", "onprem");
  add("submission_platform", "1xExample");
  add("seed", run.seed);
  add("global_batch_size", run.global_batch);
  add("gradient_accumulation_steps", 4);
  add("train_samples", 1'000'000);
  add("eval_samples", large ? 5760 : lora ? 173 : gpt3 ? 24'567 : 1024);
  add("opt_gradient_clip_norm", lora ? 0.3 : 1.0);
  if (lora) {
    add("opt_base_learning_rate", 4e-4);
    add("opt_learning_rate_training_steps", 1024);
    add("opt_adamw_weight_decay", 1e-4);
    add("lora_rank", 16);
    add("lora_alpha", 32);
  } else {
    const double warmup = deepseek ? 4 : large ? std::ceil(8000.0 * 1152 / run.global_batch) : 128;
    const double rate = deepseek ? 2.4e-5 * std::sqrt(run.global_batch / 16'384)
                        : large  ? 8e-5 * run.global_batch / 1152
                        : gpt3   ? 2e-5
                                 : 8e-4;
    add("max_sequence_length", gpt3 ? 2048 : deepseek ? 4096 : 8192);
    add("opt_name", adam);
    add("opt_base_learning_rate", rate);
    add("opt_end_learning_rate", 8e-7);
    add("opt_learning_rate_warmup_steps", warmup);
    add("opt_learning_rate_decay_steps", large ? std::ceil(1.2e6 * 1152 / run.global_batch) - warmup
                                         : deepseek ? 12'000 - warmup
                                                    : 1'200'000 - warmup);
    add("opt_learning_rate_decay_schedule", "cosine with linear warmup");
    add("opt_" + adam + "_beta_1", 0.9);
    add("opt_" + adam + "_beta_2", 0.95);
    add("opt_" + adam + "_epsilon", gpt3 || deepseek ? 1e-8 : 1e-5);
    if (deepseek) add("moe_aux_loss_coeff", 0.01);
    if (!gpt3) add("opt_adamw_weight_decay", 0.1);
    if (gpt3 || large) add("init_checkpoint_step", gpt3 ? 3000 : 0);
    if (!gpt3 && !large) add("max_steps", 1'200'000);
  }
  time_ms += 60e3;
  add("init_stop", nullptr);
  add("run_start", nullptr);
  const double interval = gpt3       ? 24'576
                          : lora     ? 384
                          : large    ? 18'432
                          : deepseek ? run.global_batch
                                     : 12'288;
  const double target = gpt3                             ? 2.69
                        : lora                           ? 0.925
                        : large                          ? 5.6
                        : deepseek                       ? 3.6
                        : run.benchmark == "gpt_oss_20b" ? 3.34
                                                         : 3.3;
  const char* unit = gpt3 ? "epoch_num" : "samples_count";
  const double scale = gpt3 ? 2048 : 1;
  for (double done = 0; done < run.samples_to_target; done += interval) {
    const double next = done + interval;
    const Json at = {{unit, next * scale}};
    add("block_start", nullptr,
        gpt3 ? Json{{"first_epoch_num", done * scale}, {"epoch_count", interval * scale}}
             : Json{{"samples_count", done}});
    time_ms += interval * run.seconds_per_sample * 1e3;
    add("block_stop", nullptr, gpt3 ? Json{{"first_epoch_num", done * scale}} : at);
    add("eval_start", nullptr, at);
    time_ms += run.eval_seconds * 1e3;
    const bool last = next >= run.samples_to_target;
    add("eval_accuracy", last ? target - 0.001 : target + 0.1, at);
    add("eval_stop", nullptr, at);
  }
  add("run_stop", nullptr, {{"status", "success"}});
  return log;
}

inline bool has(const std::vector<Finding>& findings, const std::string& rule, bool warning) {
  return std::any_of(findings.begin(), findings.end(), [&](const Finding& f) {
    return f.rule == rule && f.warning == warning && !f.message.empty() && !f.remedy.empty();
  });
}

inline std::string listed(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) text += format_finding(finding) + "\n";
  return text;
}

inline const std::vector<catalog::Benchmark>& benchmarks() {
  static const auto all =
      catalog::load_benchmarks(posix_file_system(), TUTTI_SOURCE_DIR "/catalog");
  return all;
}

inline void write_file(FileSystem& files, const std::string& path, const std::string& text) {
  files.create_directories(parent_path(path));
  const auto file = files.create(path);
  file->append(text.data(), text.size());
  file->close();
}

}  // namespace tutti::mlperf
