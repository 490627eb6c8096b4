#include "tutti/base/packed_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace tutti {
namespace {

struct Group {
  std::array<float, kPackGroup> x = {};
  float amax = 0;
  float largest = 0;  // of that magnitude, with its sign
  bool finite = true;
};

Group group_of(const float* values, int64_t count) {
  Group out;
  for (int64_t i = 0; i < count; ++i) {
    const float x = values[i];
    out.x[static_cast<size_t>(i)] = x;
    out.finite = out.finite && std::isfinite(x);
    if (std::abs(x) > out.amax) {
      out.amax = std::abs(x);
      out.largest = x;
    }
  }
  return out;
}

// 0 where the scale is 0 or too small to divide by.
float inverse(float scale) {
  const float out = 1 / scale;
  return std::isfinite(out) ? out : 0;
}

int code_of(float x, float inverse_scale, int low, int high) {
  return static_cast<int>(std::clamp(std::nearbyint(x * inverse_scale), static_cast<float>(low),
                                     static_cast<float>(high)));
}

double squared_error(const Group& group, float scale) {
  const float to_code = inverse(scale);
  double out = 0;
  for (const float x : group.x) {
    const float off = x - scale * static_cast<float>(code_of(x, to_code, -8, 7));
    out += static_cast<double>(off) * static_cast<double>(off);
  }
  return out;
}

bf16 int4_scale(const Group& group) {
  bf16 best = {};
  double least = std::numeric_limits<double>::infinity();
  for (const float part : {8.0F, 7.5F, 7.0F, 8.5F, 9.0F}) {
    const bf16 scale = to_bf16(group.largest / -part);
    const double error = squared_error(group, to_f32(scale));
    if (error < least) {
      least = error;
      best = scale;
    }
  }
  return best;
}

// Of int4: the byte that holds column `column` of a row, and whether in its upper half.
struct Nibble {
  int64_t byte = 0;
  bool upper = false;
};
Nibble nibble_of(int64_t column) {
  const int64_t group = column / kPackGroup;
  return {group / 4 * (kPackBlock / 2) + 2 * (column % kPackGroup) + group % 4 / 2, group % 2 == 1};
}

}  // namespace

void pack_row(PackKind kind, const float* values, int64_t columns, uint8_t* codes, bf16* scales) {
  for (int64_t first = 0; first < columns; first += kPackGroup) {
    const Group group = group_of(values + first, std::min(kPackGroup, columns - first));
    bf16& scale = *scales++;
    if (!group.finite) {
      scale = to_bf16(std::numeric_limits<float>::quiet_NaN());
    } else {
      scale = kind == PackKind::int8 ? to_bf16(group.amax / 127) : int4_scale(group);
    }
    const float to_code = group.finite ? inverse(to_f32(scale)) : 0;
    if (kind == PackKind::int8) {
      for (const float x : group.x) {
        *codes++ = static_cast<uint8_t>(
            static_cast<int8_t>(group.finite ? code_of(x, to_code, -127, 127) : 0));
      }
      continue;
    }
    const int64_t number = first / kPackGroup;
    uint8_t* block = codes + number / 4 * (kPackBlock / 2);
    if (number % 4 == 0) std::fill_n(block, kPackBlock / 2, uint8_t{0x88});
    for (size_t i = 0; i < group.x.size(); ++i) {
      const int code = group.finite ? code_of(group.x[i], to_code, -8, 7) + 8 : 8;
      uint8_t& both = block[2 * i + static_cast<size_t>(number % 4 / 2)];
      both = number % 2 == 0 ? static_cast<uint8_t>((both & 0xF0) | code)
                             : static_cast<uint8_t>((both & 0x0F) | code << 4);
    }
  }
}

void unpack_row(PackKind kind, const uint8_t* codes, const bf16* scales, int64_t columns,
                float* values) {
  for (int64_t i = 0; i < columns; ++i) {
    float number = 0;
    if (kind == PackKind::int8) {
      number = static_cast<float>(static_cast<int8_t>(codes[i]));
    } else {
      const Nibble at = nibble_of(i);
      const unsigned both = codes[at.byte];
      number = static_cast<float>(static_cast<int>(at.upper ? both >> 4 : both & 15) - 8);
    }
    values[i] = to_f32(scales[i / kPackGroup]) * number;
  }
}

void set_codes(PackKind kind, const int8_t* numbers, int64_t columns, uint8_t* codes) {
  const int64_t row_bytes = packed_layout(kind, 1, columns).row_bytes;
  if (kind == PackKind::int8) {
    std::copy_n(numbers, columns, codes);
    std::fill_n(codes + columns, row_bytes - columns, uint8_t{0});
    return;
  }
  std::fill_n(codes, row_bytes, uint8_t{0});
  for (int64_t i = 0; i < columns; ++i) {
    const Nibble at = nibble_of(i);
    const int code = numbers[i] + 8;
    codes[at.byte] = static_cast<uint8_t>(codes[at.byte] | (at.upper ? code << 4 : code));
  }
  for (int64_t i = columns; i < 2 * row_bytes; ++i) {
    const Nibble at = nibble_of(i);
    codes[at.byte] = static_cast<uint8_t>(codes[at.byte] | (at.upper ? 0x80 : 0x08));
  }
}

void get_codes(PackKind kind, const uint8_t* codes, int64_t columns, int8_t* numbers) {
  for (int64_t i = 0; i < columns; ++i) {
    if (kind == PackKind::int8) {
      numbers[i] = static_cast<int8_t>(codes[i]);
      continue;
    }
    const Nibble at = nibble_of(i);
    const int both = codes[at.byte];
    numbers[i] = static_cast<int8_t>((at.upper ? both >> 4 : both & 15) - 8);
  }
}

}  // namespace tutti
