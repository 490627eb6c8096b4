#include "tutti/catalog/chips.h"

#include "tutti/base/error.h"
#include "tutti/catalog/known_quantities.h"
#include "tutti/spec/recipe/names.h"

namespace tutti::catalog {

double product_flops(const Chip& chip, spec::Precision precision) {
  switch (precision) {
    case spec::Precision::f32: return chip.f32_flops > 0 ? chip.f32_flops : chip.bf16_flops;
    case spec::Precision::bf16: return chip.bf16_flops;
    case spec::Precision::fp8: return chip.fp8_flops;
    // The units that scale blocks came with those for 4 bits.
    case spec::Precision::mxfp8: return chip.fp4_flops > 0 ? chip.fp8_flops : 0;
    case spec::Precision::fp4: return chip.fp4_flops;
  }
  return 0;
}

void check_precision(const Chip& chip, spec::Precision precision) {
  if (chip.bf16_flops <= 0) {
    fail(ErrorKind::unsupported,
         "chip {}: its rate of 16-bit products is not published, which attention runs at under "
         "every precision; add dense_bf16_tflops (--catalog FOLDER, chips/*.yaml)",
         chip.name);
  }
  if (product_flops(chip, precision) > 0) return;
  std::string has;
  for (const auto& [name, each] : spec::kPrecisionNames) {
    if (product_flops(chip, each) > 0) has += (has.empty() ? "" : ", ") + name;
  }
  fail(ErrorKind::unsupported, "precision: {}: {} has no such products; accepted on it: {}",
       spec::name_of(spec::kPrecisionNames, precision), chip.name, has);
}

namespace {

// A number that times and sizes are divided by.
double above_zero(const Entry& entry, const std::string& key) {
  const double value = entry.number(key);
  if (value <= 0)
    fail(ErrorKind::usage, "{}: quantities.{}: must be above zero", entry.origin, key);
  return value;
}

}  // namespace

Chip chip_from(const Entry& entry) {
  check_quantities(entry,
                   {"dense_f32_tflops", "dense_bf16_tflops", "dense_fp8_tflops", "dense_fp4_tflops",
                    "sparse_fp4_tflops", "memory_gigabytes", "reported_memory_gigabytes",
                    "memory_terabytes_per_second", "link_gigabytes_per_second",
                    "host_link_gigabytes_per_second", "board_power_watts", "usual_power_watts",
                    "best_product_ratio", "best_fp8_product_ratio", "exponential_tflops"});
  Chip chip;
  chip.name = entry.name;
  chip.vendor = entry.text("vendor");
  chip.generation = entry.text("generation");
  chip.f32_flops = entry.number_or("dense_f32_tflops", 0) * 1e12;
  chip.bf16_flops = entry.number_or("dense_bf16_tflops", 0) * 1e12;
  chip.fp8_flops = entry.number_or("dense_fp8_tflops", 0) * 1e12;
  chip.fp4_flops = entry.number_or("dense_fp4_tflops", 0) * 1e12;
  if (chip.bf16_flops <= 0 && chip.fp8_flops <= 0) above_zero(entry, "dense_bf16_tflops");
  chip.sparse_fp4_flops = entry.number_or("sparse_fp4_tflops", 0) * 1e12;
  const double sheet = above_zero(entry, "memory_gigabytes");
  chip.memory_bytes = entry.number_or("reported_memory_gigabytes", sheet) * 1e9;
  chip.memory_bytes_per_second = above_zero(entry, "memory_terabytes_per_second") * 1e12;
  chip.link_bytes_per_second = entry.number("link_gigabytes_per_second") * 1e9;
  chip.board_watts = entry.number_or("board_power_watts", 0);
  const double usual = entry.number_or("usual_power_watts", chip.board_watts);
  constexpr double kIdleShare = 0.2;
  if (chip.board_watts < usual) {
    chip.power_share = (chip.board_watts - kIdleShare * usual) / (usual * (1 - kIdleShare));
    if (chip.power_share <= 0) {
      fail(ErrorKind::usage,
           "{}: quantities.board_power_watts: {} is not above the idle power of {}", entry.origin,
           chip.board_watts, chip.name);
    }
  }
  chip.best_product_ratio = entry.number_or("best_product_ratio", 0);
  chip.best_fp8_product_ratio = entry.number_or("best_fp8_product_ratio", 0);
  chip.exponentials_per_second = entry.number_or("exponential_tflops", 0) * 1e12;
  chip.entry = entry;
  return chip;
}

}  // namespace tutti::catalog
