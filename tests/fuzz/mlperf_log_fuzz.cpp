// Fuzz target of the MLPerf log reader and checker: any bytes, under any ruleset, must neither
// crash nor hang, and must give the same answer twice.
//
// With clang, link it to libFuzzer (-fsanitize=fuzzer); without, fuzz_driver.cpp feeds it.

#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "tutti/mlperf/check_log.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name that libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

// NOLINTNEXTLINE(readability-identifier-naming)
int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace tutti::mlperf;
  if (size == 0) return 0;
  static const auto versions = ruleset_versions();
  const Ruleset& ruleset = find_ruleset(versions[data[0] % versions.size()]);
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const LogCheck one = check_log_text(text, "log", ruleset);
  const LogCheck two = check_log_text(text, "log", ruleset);
  if (one.compliant != two.compliant || one.findings.size() != two.findings.size()) std::abort();
  for (const Finding& finding : one.findings) {
    if (format_finding(finding).empty() || tutti::dump_json(to_json(finding)).empty()) std::abort();
    if (finding.line < 0 || finding.message.empty()) std::abort();
  }
  return 0;
}
