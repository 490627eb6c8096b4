#include "tutti/catalog/chips.h"

#include "tutti/catalog/known_quantities.h"

namespace tutti::catalog {

Chip chip_from(const Entry& entry) {
  check_quantities(entry, {"dense_bf16_tflops", "dense_fp8_tflops", "dense_fp4_tflops",
                           "sparse_fp4_tflops", "memory_gigabytes", "memory_terabytes_per_second",
                           "link_gigabytes_per_second", "board_power_watts"});
  Chip chip;
  chip.name = entry.name;
  chip.vendor = entry.text("vendor");
  chip.generation = entry.text("generation");
  chip.bf16_flops = entry.number("dense_bf16_tflops") * 1e12;
  chip.fp8_flops = entry.number_or("dense_fp8_tflops", 0) * 1e12;
  chip.fp4_flops = entry.number_or("dense_fp4_tflops", 0) * 1e12;
  chip.sparse_fp4_flops = entry.number_or("sparse_fp4_tflops", 0) * 1e12;
  chip.memory_bytes = entry.number("memory_gigabytes") * 1e9;
  chip.memory_bytes_per_second = entry.number("memory_terabytes_per_second") * 1e12;
  chip.link_bytes_per_second = entry.number("link_gigabytes_per_second") * 1e9;
  chip.board_watts = entry.number_or("board_power_watts", 0);
  chip.entry = entry;
  return chip;
}

}  // namespace tutti::catalog
