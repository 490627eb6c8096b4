// History of a machine's speed: one row per measurement in a file of JSON lines, and the comparison
// of a new row with the last rows of the same machine type.
//
//   {"time": "2026-01-31T12:00:00Z", "version": "0.2.0+g1a2b3c4",
//    "machine": {"cpu": "...", "cores": 2, "memory_gib": 24, "kernel": "...", ...},
//    "figures": {"gpt2-124m bf16 4x64, share of GEMM peak": {"value": 0.63, "noise": 0.004}, ...}}
//
// Higher figures are better. `noise` is the relative standard error of the value, from the spread
// of its repetitions.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/base/json.h"

namespace tutti::train {

struct BenchFigure {
  double value = 0;
  double noise = 0;
};

struct BenchRow {
  std::string time;
  std::string version;  // of the program, with the commit
  Json machine = Json::object();
  std::map<std::string, BenchFigure> figures;
};

// The median of repeated measurements, as value and noise. There must be one.
BenchFigure bench_figure(const std::vector<double>& repetitions);

// This machine: cpu, cores, memory_gib; kernel, glibc, oneDNN, compiler.
Json bench_machine();

// Whether figures may be compared: same cpu, cores and memory. Kernel and libraries may differ: a
// newer one that is slower is what the history is for.
bool same_kind(const Json& machine, const Json& other);

// Rows in the order of the file; empty when there is none. Lines that are no row, such as one that
// a full disk cut off, are left out.
std::vector<BenchRow> read_bench_history(FileSystem& files, const std::string& path);
// Creates the file and its folder when absent.
void append_bench_row(FileSystem& files, const std::string& path, const BenchRow& row);
Json to_json(const BenchRow& row);

enum class BenchVerdict { first, same, slower, faster };
const char* bench_verdict_name(BenchVerdict verdict);

struct BenchJudgement {
  std::string figure;
  double value = 0;
  double reference = 0;  // median of the rows before; 0: none
  double change = 0;     // relative: -0.1 is 10% slower
  double limit = 0;      // relative: changes up to this are noise
  int64_t rows = 0;      // compared with
  BenchVerdict verdict = BenchVerdict::first;
};

// Every figure of `now` against the last kBenchRows rows of the same kind of machine that have it.
//
// The noise of one row is the greater of two: the spread of those rows (from their median absolute
// deviation, which single outliers do not move), and the row's own noise. Few rows say little about
// their spread, so it is pooled with an assumed one of 2% that weighs as much as 3 rows. A change
// beyond 3 standard deviations of (row minus median of n rows) is not noise:
//
//   limit = 3 s sqrt(1 + pi / (2 n)),  s^2 = max(noise^2, (3 0.02^2 + (n - 1) mad^2) / (n + 2))
inline constexpr int64_t kBenchRows = 12;
std::vector<BenchJudgement> judge_bench(const std::vector<BenchRow>& before, const BenchRow& now);

}  // namespace tutti::train
