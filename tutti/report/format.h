// Human-readable numbers, in text and on axes.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::report {

// What a number measures, hence how it is written.
enum class Quantity {
  number,   // 4 significant digits: "0.3142", "1.2e-05"
  loss,     // 4 decimals
  ratio,    // a share, as per cent: 0.613 is "61.3%"
  seconds,  // "62.4 ms", "1 min 05 s"
  rate,     // per second, with k, M, ...: "32.5 k"
  bytes,    // "1.50 GiB"
  integer,  // "1,234,567"
};

const char* quantity_name(Quantity quantity);  // what the page's script calls it

std::string format_value(Quantity quantity, double value);  // "–" when not finite
std::string format_integer(int64_t value);                  // "1,234,567"

std::string format_flops(double per_second);  // "1.005 TFLOP/s"

// The label of a tick, as short as `step`, the distance to the next one, allows.
std::string format_tick(Quantity quantity, double value, double step);

}  // namespace tutti::report
