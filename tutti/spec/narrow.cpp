#include "tutti/spec/narrow.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace tutti::spec {
namespace {

constexpr double kWide = 2;  // bytes of an element before

double real(int64_t value) { return static_cast<double>(value); }

// Elements of both operands, or of the left one.
double operand_elements(const Op& op) {
  const auto& d = op.dims;
  if (std::string_view(op.name) == "gemm") return real(d[0] * d[2] + d[1] * d[2]);
  if (std::string_view(op.name) == "grouped_gemm") return real(d[1] * d[3] + d[0] * d[2] * d[3]);
  return real(d[1] * (d[2] + d[3]));  // grouped_gemm_weight: both have a row per copy
}

}  // namespace

bool is_narrow(Precision precision) {
  return precision == Precision::fp8 || precision == Precision::mxfp8 ||
         precision == Precision::fp4;
}

const NarrowFormat* block_scaled_format(Precision precision) {
  static constexpr NarrowFormat kMxfp8 = {"mxfp8", 8, 32, 8};
  static constexpr NarrowFormat kNvfp4 = {"nvfp4", 4, 16, 8};
  if (precision == Precision::mxfp8) return &kMxfp8;
  return precision == Precision::fp4 ? &kNvfp4 : nullptr;
}

Op quantize_op(const NarrowFormat& format, int64_t rows, int64_t columns) {
  return memory_op("quantize", {rows, columns},
                   real(rows) * real(columns) * (kWide + 2 * format.element_bytes()));
}

void describe_narrow(const NarrowFormat& format, bool left, std::vector<Op>& ops) {
  std::vector<Op> out;
  for (Op op : ops) {
    if (op.narrow) {
      const bool grouped = std::string_view(op.name) != "gemm";
      const double saved = operand_elements(op) * (kWide - format.element_bytes());
      op.bytes -= saved;
      op.first_bytes -= saved;
      if (left)
        out.push_back(quantize_op(format, op.dims[grouped ? 1 : 0], op.dims[grouped ? 3 : 2]));
    }
    out.push_back(op);
  }
  ops = std::move(out);
}

ParamTable narrow_parameters(const ParamTable& table) {
  ParamTable out = table;
  for (ParamGroup& group : out.groups) {
    const bool block = group.prefix == "blocks.";
    group.params.erase(std::remove_if(group.params.begin(), group.params.end(),
                                      [&](const Param& param) {
                                        const std::string_view name = param.name;
                                        return !block || param.shape.size() < 2 ||
                                               name.find("router") != name.npos ||
                                               name.find("lora") != name.npos;
                                      }),
                       group.params.end());
  }
  return out;
}

}  // namespace tutti::spec
