#include "tutti/chat/arithmetic.h"

#include <cmath>

namespace tutti::chat {
namespace {

int64_t integer_result(Context& context, bool overflow, int64_t value) {
  if (overflow) context.refuse("an integer has more than 64 bits");
  return value;
}

Value divide_integers(Context& context, const std::string& symbol, int64_t a, int64_t b) {
  if (b == -1) {
    if (symbol == "%") return Value(int64_t{0});
    int64_t out = 0;
    const bool overflow = __builtin_sub_overflow(int64_t{0}, a, &out);
    return Value(integer_result(context, overflow, out));
  }
  int64_t quotient = a / b;
  int64_t rest = a % b;
  if (rest != 0 && (rest < 0) != (b < 0)) {
    --quotient;
    rest += b;
  }
  return Value(symbol == "%" ? rest : quotient);
}

Value power(Context& context, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) context.refuse("zero cannot be raised to the power {}", exponent);
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t out = 1;
  bool overflow = false;
  while (exponent > 0) {
    if ((exponent & 1) != 0) overflow = overflow || __builtin_mul_overflow(out, base, &out);
    exponent >>= 1;
    if (exponent > 0) overflow = overflow || __builtin_mul_overflow(base, base, &base);
    if (overflow) break;
  }
  return Value(integer_result(context, overflow, out));
}

Value real_arithmetic(Context& context, const std::string& symbol, double a, double b) {
  if (symbol == "+") return Value(a + b);
  if (symbol == "-") return Value(a - b);
  if (symbol == "*") return Value(a * b);
  if (symbol == "**") {
    const double out = std::pow(a, b);
    if (std::isnan(out) || (std::isinf(out) && std::isfinite(a) && std::isfinite(b))) {
      context.refuse("{} ** {} is out of range", a, b);
    }
    return Value(out);
  }
  if (b == 0) context.refuse("division by zero");
  if (symbol == "/") return Value(a / b);
  double rest = std::fmod(a, b);
  if (rest != 0 && (rest < 0) != (b < 0)) rest += b;
  if (symbol == "%") return Value(rest == 0 ? std::copysign(0.0, b) : rest);
  const double quotient = (a - rest) / b;
  const double floor = std::floor(quotient);
  return Value(quotient - floor > 0.5 ? floor + 1 : floor);
}

}  // namespace

Value arithmetic(Context& context, const std::string& symbol, const Value& a, const Value& b) {
  const auto x = a.integer();
  const auto y = b.integer();
  if (!x || !y) return real_arithmetic(context, symbol, a.real(), b.real());
  int64_t out = 0;
  if (symbol == "+") {
    const bool overflow = __builtin_add_overflow(*x, *y, &out);
    return Value(integer_result(context, overflow, out));
  }
  if (symbol == "-") {
    const bool overflow = __builtin_sub_overflow(*x, *y, &out);
    return Value(integer_result(context, overflow, out));
  }
  if (symbol == "*") {
    const bool overflow = __builtin_mul_overflow(*x, *y, &out);
    return Value(integer_result(context, overflow, out));
  }
  if (symbol == "**") return power(context, *x, *y);
  if (*y == 0) context.refuse("division by zero");
  if (symbol == "/") return Value(a.real() / b.real());
  return divide_integers(context, symbol, *x, *y);
}

Value negative(Context& context, const Value& value) {
  if (value.is_undefined()) context.refuse("'-' cannot be applied to an undefined value");
  if (!value.is_number()) context.refuse("'-' cannot be applied to {}", type_name(value));
  if (!value.integer()) return Value(-value.real());
  int64_t out = 0;
  const bool overflow = __builtin_sub_overflow(int64_t{0}, *value.integer(), &out);
  return Value(integer_result(context, overflow, out));
}

}  // namespace tutti::chat
