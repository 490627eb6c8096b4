#include "tutti/base/dtype.h"

#include <array>

#include "tutti/base/error.h"

namespace tutti {
namespace {

struct Entry {
  DType type;
  const char* name;
  int64_t bytes;
};

constexpr std::array<Entry, 11> kTypes = {{{DType::f32, "f32", 4},
                                           {DType::bf16, "bf16", 2},
                                           {DType::f16, "f16", 2},
                                           {DType::f64, "f64", 8},
                                           {DType::u8, "u8", 1},
                                           {DType::i8, "i8", 1},
                                           {DType::u16, "u16", 2},
                                           {DType::i16, "i16", 2},
                                           {DType::i32, "i32", 4},
                                           {DType::i64, "i64", 8},
                                           {DType::u64, "u64", 8}}};

}  // namespace

int64_t dtype_bytes(DType type) { return kTypes.at(static_cast<size_t>(type)).bytes; }

const char* dtype_name(DType type) { return kTypes.at(static_cast<size_t>(type)).name; }

DType parse_dtype(std::string_view name) {
  for (const Entry& entry : kTypes) {
    if (name == entry.name) return entry.type;
  }
  fail(ErrorKind::usage,
       "unknown element type '{}': use f32, bf16, f16, f64, u8, i8, u16, i16, "
       "i32, i64 or u64",
       name);
}

}  // namespace tutti
