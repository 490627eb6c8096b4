// Feeds a fuzz target with damaged inputs, where libFuzzer is not at hand.
//
//   mlperf_log_fuzz SECONDS [SEED] [FILE...]
//
// Inputs are the built-in good log and the files, changed by a few random edits each: bytes
// flipped, pieces removed, repeated, swapped with those of another input, words of the format put
// in. The sequence depends on SEED alone; a crash prints nothing itself, so the input is written to
// mlperf_log_fuzz.crash before each run when FUZZ_KEEP is set.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "tutti/base/clock.h"
#include "tutti/base/file.h"
#include "tutti/base/rng.h"
#include "tutti/mlperf/testing/test_support.h"

// NOLINTNEXTLINE(readability-identifier-naming): the name that libFuzzer calls
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using tutti::random_u64;

constexpr size_t kLongestInput = 200'000;

const std::vector<std::string>& words() {
  static const std::vector<std::string> all = {":::MLLOG ",
                                               "{",
                                               "}",
                                               "[",
                                               "\"",
                                               "\\u0000",
                                               "\\",
                                               "\n",
                                               "\r",
                                               "NaN",
                                               "-Infinity",
                                               "1e999",
                                               "null",
                                               "\"key\": ",
                                               "\"value\": ",
                                               "\"metadata\": {}",
                                               "\"time_ms\": 1e300",
                                               "\"submission_benchmark\"",
                                               "\"gpt3\"",
                                               "\"llama31_405b\"",
                                               "\"epoch_num\": ",
                                               "\"samples_count\": ",
                                               "99999999999999999999999999",
                                               "-1",
                                               "0",
                                               "\xff\xfe",
                                               "\xed\xa0\x80",
                                               std::string(2000, '['),
                                               std::string(400, '9'),
                                               std::string(1, '\0')};
  return all;
}

class Mutator {
 public:
  explicit Mutator(uint64_t key) : key_(key) {}

  std::string change(std::string text, const std::string& other) {
    const size_t edits = 1 + below(8);
    for (size_t i = 0; i < edits; ++i) edit(text, other);
    if (text.size() > kLongestInput) text.resize(kLongestInput);
    return text;
  }
  size_t below(size_t bound) {
    return bound == 0 ? 0 : static_cast<size_t>(random_u64(key_, index_++) % bound);
  }

 private:
  void edit(std::string& text, const std::string& other) {
    const size_t at = below(text.size() + 1);
    const size_t length = std::min(text.size() - at, below(below(4) == 0 ? 20'000 : 60));
    switch (below(6)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1U << below(8)));
        break;
      case 1: text.erase(at, length); break;
      case 2: text.insert(below(text.size() + 1), text.substr(at, length)); break;
      case 3: {
        const size_t from = below(other.size() + 1);
        text.insert(at, other.substr(from, below(2000)));
        break;
      }
      case 4: text.insert(at, words()[below(words().size())]); break;
      default: text.resize(at); break;
    }
  }

  uint64_t key_;
  uint64_t index_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  const double seconds = argc > 1 ? std::atof(argv[1]) : 1;
  const uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1;
  std::vector<std::string> inputs;
  for (const char* benchmark : {"gpt3", "llama31_405b", "llama31_8b", "llama2_70b_lora"}) {
    tutti::mlperf::SyntheticRun run;
    run.benchmark = benchmark;
    run.samples_to_target = 40'000;
    inputs.push_back("x" + tutti::mlperf::good_log(run).text());
  }
  for (int i = 3; i < argc; ++i) {
    inputs.push_back("x" + tutti::read_file(tutti::posix_file_system(), argv[i]));
  }
  Mutator mutator(tutti::stream_key(seed, "fuzz"));
  const double end = tutti::monotonic_seconds() + seconds;
  int64_t runs = 0;
  for (; tutti::monotonic_seconds() < end; ++runs) {
    const std::string& from = inputs[mutator.below(inputs.size())];
    std::string input = mutator.change(from, inputs[mutator.below(inputs.size())]);
    if (input.empty()) continue;
    input[0] = static_cast<char>(mutator.below(256));
    if (std::getenv("FUZZ_KEEP") != nullptr) {
      tutti::write_file_atomic(tutti::posix_file_system(), "mlperf_log_fuzz.crash", input);
    }
    LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
    // Damage adds up, within bounds.
    if (mutator.below(4) == 0 && inputs.size() < 200) inputs.push_back(std::move(input));
  }
  std::printf("%lld inputs\n", static_cast<long long>(runs));
  return runs > 0 ? 0 : 1;
}
