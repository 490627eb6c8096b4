#include "tutti/data/corpus/format.h"

#include <utility>

#include "tutti/base/check.h"

namespace tutti::data {
namespace {

constexpr std::pair<uint8_t, DType> kCodes[] = {{1, DType::u8},  {2, DType::i8},  {3, DType::i16},
                                                {4, DType::i32}, {5, DType::i64}, {6, DType::f64},
                                                {7, DType::f32}, {8, DType::u16}};

}  // namespace

DType token_dtype(int64_t vocabulary) {
  return vocabulary < kWideVocabulary ? DType::u16 : DType::i32;
}

uint8_t index_dtype_code(DType type) {
  for (const auto& [code, dtype] : kCodes) {
    if (dtype == type) return code;
  }
  check_failed(__FILE__, __LINE__, "type has a code",
               fmt::format("{} cannot be stored in .idx", dtype_name(type)));
}

std::optional<DType> index_dtype(uint8_t code) {
  for (const auto& [known, dtype] : kCodes) {
    if (known == code) return dtype;
  }
  return std::nullopt;
}

CorpusPaths corpus_paths(const std::string& prefix) {
  return {prefix + ".bin",       prefix + ".idx",  prefix + ".tokenizer.json",
          prefix + ".meta.json", prefix + ".mask", prefix + ".checksums"};
}

std::string validation_prefix(const std::string& prefix) { return prefix + "-validation"; }

}  // namespace tutti::data
