#include "tutti/spec/program/narrow.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/real.h"
#include "tutti/spec/mesh/zero_layers.h"
#include "tutti/spec/recipe/names.h"

namespace tutti::spec {
namespace {

constexpr double kWide = 2;  // bytes per element before

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
  const bool blocks = precision == Precision::mxfp8 || precision == Precision::fp4;
  return blocks ? &narrow_format(operand_kind(precision)) : nullptr;
}

NarrowKind operand_kind(Precision precision) {
  if (precision == Precision::mxfp8) return NarrowKind::mxfp8;
  return precision == Precision::fp4 ? NarrowKind::nvfp4 : NarrowKind::e4m3;
}

NarrowKind gradient_kind(Precision precision) {
  return precision == Precision::fp8 ? NarrowKind::e5m2 : operand_kind(precision);
}

double operand_bytes(Precision precision) {
  if (!is_narrow(precision)) return kWide;
  const NarrowFormat* format = block_scaled_format(precision);
  return format != nullptr ? format->element_bytes() : 1;
}

std::string emulation_note(Precision precision, const std::string& device,
                           const std::string& architecture) {
  if (!is_narrow(precision)) return "";
  const std::string& name = name_of(kPrecisionNames, precision);
  if (device == "cpu") {
    return fmt::format(
        "precision: {} is emulated on a CPU: results are those of the format, speed is not", name);
  }
  // Of matrix units with 8-bit floating point (NVIDIA Ada and Hopper).
  constexpr double kFirst = 8.9;
  const double number = std::strtod(architecture.c_str(), nullptr);
  if (precision == Precision::fp8 && number >= kFirst) return "";
  return fmt::format(
      "precision: {} is emulated on this device ({}): {}; results are those of the format, speed "
      "is not",
      name, architecture,
      precision == Precision::fp8
          ? "its matrix units have no 8-bit types, which begin with compute capability 8.9"
          : "no library product reads scales of blocks here");
}

Op quantize_op(const NarrowFormat& format, int64_t rows, int64_t columns) {
  return memory_op("quantize", {rows, columns},
                   real(rows) * real(columns) * (kWide + 2 * format.element_bytes()));
}

void describe_narrow(const NarrowFormat& format, bool left, std::vector<Op>& ops) {
  std::vector<Op> out;
  for (Op op : ops) {
    if (op.narrow && std::string_view(op.name) != "narrow_gemm") {
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

namespace {

// x [rows, columns] of 16 bits to a narrow operand and its transpose.
Op both_operands_op(NarrowKind kind, int64_t rows, int64_t columns) {
  const int64_t payload = narrow_layout(kind, rows, columns).payload_bytes +
                          narrow_layout(kind, columns, rows).payload_bytes;
  return memory_op("quantize", {rows, columns, 2},
                   real(rows) * real(columns) * kWide + real(payload));
}

// x [rows, columns] of 16 bits to a narrow operand, transposed or not.
Op operand_op(NarrowKind kind, int64_t rows, int64_t columns, bool transpose) {
  const NarrowLayout layout =
      transpose ? narrow_layout(kind, columns, rows) : narrow_layout(kind, rows, columns);
  return memory_op("quantize", {rows, columns, transpose ? 1 : 0},
                   real(rows) * real(columns) * kWide + real(layout.payload_bytes));
}

}  // namespace

void quantize_operands(Precision precision, LinearProduct product, QuantizedOnce once,
                       std::vector<Op>& ops) {
  const NarrowKind right = operand_kind(precision);
  const NarrowKind left = product == LinearProduct::forward ? right : gradient_kind(precision);
  std::vector<Op> out;
  for (Op op : ops) {
    if (op.narrow && std::string_view(op.name) == "gemm") {
      const int64_t m = op.dims[0], n = op.dims[1], k = op.dims[2];
      const bool weight = product == LinearProduct::weight;
      if (once.gradients && product == LinearProduct::input) {
        out.push_back(both_operands_op(left, m, k));
      } else if (!once.gradients || !weight) {
        out.push_back(weight ? operand_op(left, k, m, true) : operand_op(left, m, k, false));
      }
      if (weight || !once.weights) {
        out.push_back(product == LinearProduct::forward ? operand_op(right, n, k, false)
                                                        : operand_op(right, k, n, true));
      }
      const double bytes =
          real(narrow_layout(left, m, k).payload_bytes + narrow_layout(right, n, k).payload_bytes) -
          kWide * operand_elements(op);
      op.name = "narrow_gemm";
      op.bytes += bytes;
      op.first_bytes += bytes;
    }
    out.push_back(op);
  }
  ops = std::move(out);
}

std::array<NarrowWeight, 4> block_weights(const ModelConfig& model, const LocalSizes& sizes) {
  return {{{"attention.qkv", sizes.width(Width::qkv, Split::columns), model.hidden},
           {"attention.output", model.hidden, sizes.width(Width::attention_out, Split::columns)},
           {"mlp.up", sizes.width(Width::up, Split::columns), model.hidden},
           {"mlp.down", model.hidden, sizes.width(Width::ffn, Split::columns)}}};
}

NarrowWeight head_weight(const ModelConfig& model, const LocalSizes& sizes) {
  return {"head", sizes.vocabulary, model.hidden};
}

int64_t narrow_blocks(const Recipe& recipe, int64_t stage) {
  if (!is_narrow(recipe.precision)) return 0;
  const Mesh& mesh = recipe.parallel;
  int64_t count = 0;
  for (int64_t chunk = 0; chunk < mesh.vpp; ++chunk) {
    const LayerRange range = stage_layers(mesh, recipe.model.layers, chunk * mesh.pp + stage);
    for (int64_t i = 0; i < range.count; ++i) {
      count += recipe.narrow.is_wide(range.first + i, recipe.model.layers) ? 0 : 1;
    }
  }
  return count;
}

bool has_narrow_head(const Recipe& recipe, int64_t stage) {
  return is_narrow(recipe.precision) && recipe.narrow.head && stage == recipe.parallel.pp - 1;
}

std::vector<Op> weight_quantization(const Recipe& recipe, const Profile& profile, int64_t layer) {
  std::vector<Op> ops;
  if (!profile.quantizes_weights_once || recipe.lora.enabled()) return ops;
  const LocalSizes sizes = local_sizes(recipe, profile);
  const auto add = [&](const NarrowWeight& weight) {
    ops.push_back(both_operands_op(operand_kind(recipe.precision), weight.out, weight.in));
  };
  if (layer == kHeadLayer && recipe.narrow.head) add(head_weight(recipe.model, sizes));
  if (layer >= 0 && !recipe.narrow.is_wide(layer, recipe.model.layers)) {
    for (const NarrowWeight& weight : block_weights(recipe.model, sizes)) add(weight);
  }
  return ops;
}

NarrowBuffers narrow_buffers(const Recipe& recipe, const Profile& profile) {
  NarrowBuffers buffers;
  if (!is_narrow(recipe.precision) || !profile.executable) return buffers;
  const LocalSizes sizes = local_sizes(recipe, profile);
  const auto take = [&](int64_t rows, int64_t out, int64_t in) {
    const NarrowKind right = operand_kind(recipe.precision);
    const NarrowKind left = gradient_kind(recipe.precision);
    const auto bytes = [](NarrowKind kind, int64_t r, int64_t c) {
      return narrow_layout(kind, r, c).bytes;
    };
    buffers.left = std::max(
        {buffers.left, bytes(right, rows, in), bytes(left, rows, out), bytes(left, out, rows)});
    buffers.right = std::max(buffers.right, bytes(right, in, rows));
    if (profile.quantizes_weights_once) return;
    buffers.right = std::max({buffers.right, bytes(right, out, in), bytes(right, in, out)});
  };
  const ModelConfig& model = recipe.model;
  const int64_t rows = sizes.tokens;
  if (recipe.narrow.wide_first + recipe.narrow.wide_last < model.layers) {
    int64_t* const turned[] = {&buffers.turned_qkv, &buffers.turned_output, &buffers.turned_up,
                               &buffers.turned_down};
    size_t i = 0;
    for (const NarrowWeight& weight : block_weights(model, sizes)) {
      take(rows, weight.out, weight.in);
      if (profile.quantizes_gradients_once) {
        *turned[i] = narrow_layout(gradient_kind(recipe.precision), weight.out, rows).bytes;
      }
      ++i;
    }
  }
  if (recipe.narrow.head) {
    const NarrowWeight head = head_weight(model, sizes);
    take(loss_chunk_rows(profile, rows, sizes.vocabulary), head.out, head.in);
  }
  return buffers;
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
