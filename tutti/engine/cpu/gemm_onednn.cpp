#include "tutti/engine/cpu/gemm_onednn.h"

#include <array>
#include <map>
#include <string_view>
#include <tuple>
#include <vector>

#include "tutti/engine/cpu/convert.h"
#include "tutti/engine/cpu/isa.h"
#include "tutti/engine/cpu/onednn_compat.h"
#include "tutti/engine/cpu/parallel.h"

namespace tutti::engine {
namespace {

using DataType = dnnl::memory::data_type;

// Cache key: everything that a primitive depends on.
using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int64_t, bool, bool, DType,
                       DType, DType, bool, bool, float>;

// A primitive with the argument list of its calls; only the pointers change from call to call.
struct Primitive {
  dnnl::matmul matmul;
  std::array<dnnl::memory, 6> memories;
  std::vector<dnnl_exec_arg_t> args;
  int64_t scratch_bytes = 0;
};
enum { kA, kB, kC, kBias, kScratch, kScale };

DataType data_type(DType dtype) { return dtype == DType::bf16 ? DataType::bf16 : DataType::f32; }

// oneDNN's default for f32 is its batch-reduce kernel, which reads B unpacked: 5% faster than the
// packing kernel for the few rows of a small forward step, 5 to 30% slower for everything else (Zen
// 5, shapes of GPT-2 124M).
bool is_wanted(std::string_view implementation, const GemmArgs& g) {
  constexpr int64_t kManyRows = 1024;
  const bool first =
      g.a.dtype != DType::f32 || (g.transpose_b && !g.transpose_a && g.c.rows < kManyRows);
  return first || implementation.find("gemm:jit") != std::string_view::npos;
}

dnnl::memory::desc describe(const Matrix& x, bool transpose) {
  if (transpose) return {{x.cols, x.rows}, data_type(x.dtype), dnnl::memory::dims{1, x.ld}};
  return {{x.rows, x.cols}, data_type(x.dtype), dnnl::memory::dims{x.ld, 1}};
}

}  // namespace

struct GemmCache::Impl {
  dnnl::engine engine{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream{engine};
  std::map<Key, Primitive> primitives;

  Primitive create(const GemmArgs& g) {
    const dnnl::memory::desc a = describe(g.a, g.transpose_a);
    const dnnl::memory::desc b = describe(g.b, g.transpose_b);
    const dnnl::memory::desc c = describe(g.c, false);
    const dnnl::memory::desc bias({1, g.c.cols}, data_type(g.bias.dtype),
                                  dnnl::memory::dims{g.c.cols, 1});
    dnnl::primitive_attr attributes;
    attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    Primitive p;
    if (g.alpha != 1) p.memories[kScale] = onednn::scale_product(attributes, g.alpha, engine);
    if (g.beta != 0) {
      dnnl::post_ops sum;
      sum.append_sum(1);
      attributes.set_post_ops(sum);
    }
    const dnnl::matmul::primitive_desc chosen = onednn::find_matmul(
        engine, a, b, g.bias ? &bias : nullptr, c, attributes,
        [&](std::string_view implementation) { return is_wanted(implementation, g); });
    p.matmul = dnnl::matmul(chosen);
    p.scratch_bytes = static_cast<int64_t>(chosen.scratchpad_desc().get_size());
    const auto add = [&](int slot, int name, const dnnl::memory::desc& layout) {
      p.memories[slot] = dnnl::memory(layout, engine, nullptr);
      p.args.push_back({name, p.memories[slot].get()});
    };
    add(kA, DNNL_ARG_SRC, a);
    add(kB, DNNL_ARG_WEIGHTS, b);
    add(kC, DNNL_ARG_DST, c);
    if (g.bias) add(kBias, DNNL_ARG_BIAS, bias);
    add(kScratch, DNNL_ARG_SCRATCHPAD, chosen.scratchpad_desc());
    if (p.memories[kScale]) p.args.push_back({onednn::kScaleArgument, p.memories[kScale].get()});
    return p;
  }

  Primitive& find(const GemmArgs& g) {
    const Key key{g.c.rows,      g.c.cols,      g.transpose_a ? g.a.rows : g.a.cols,
                  g.a.ld,        g.b.ld,        g.c.ld,
                  g.transpose_a, g.transpose_b, g.a.dtype,
                  g.c.dtype,     g.bias.dtype,  static_cast<bool>(g.bias),
                  g.beta != 0,   g.alpha};
    auto found = primitives.find(key);
    if (found == primitives.end()) found = primitives.emplace(key, create(g)).first;
    return found->second;
  }

  void execute(Primitive& p, const GemmArgs& g, void* scratch) {
    const auto set = [&](int slot, void* data) {
      dnnl_memory_set_data_handle(p.memories[slot].get(), data);
    };
    set(kA, g.a.data);
    set(kB, g.b.data);
    set(kC, g.c.data);
    if (g.bias) set(kBias, g.bias.data);
    set(kScratch, scratch);
    const dnnl_status_t status = dnnl_primitive_execute(
        p.matmul.get(), stream.get(), static_cast<int>(p.args.size()), p.args.data());
    TUTTI_CHECK(status == dnnl_success, "oneDNN matmul failed with status {}",
                static_cast<int>(status));
    stream.wait();
  }
};

GemmCache::GemmCache() : impl_(std::make_unique<Impl>()) {}
GemmCache::~GemmCache() = default;

namespace {

constexpr int64_t kAlign = 4096;

int64_t wide_bytes(const Matrix& x) {
  return (x.rows * x.cols * int64_t{4} + kAlign - 1) / kAlign * kAlign;
}

Matrix widen(const Matrix& x, void* to) {
  const Matrix out = matrix(to, DType::f32, x.rows, x.cols);
  parallel_ranges(x.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      convert_elements(x.row<bf16>(r), out.row<float>(r), x.cols);
    }
  });
  return out;
}

void narrow(const Matrix& x, const Matrix& out) {
  parallel_ranges(x.rows, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t r = begin; r < end; ++r) {
      convert_elements(x.row<float>(r), out.row<bf16>(r), x.cols);
    }
  });
}

}  // namespace

bool onednn_multiplies_bf16() {
  static const auto limit = static_cast<int>(dnnl::get_effective_cpu_isa());
  constexpr auto kNeeded = static_cast<int>(dnnl::cpu_isa::avx512_core);
  return current_isa() >= Isa::avx512 && (limit & kNeeded) == kNeeded;
}

bool onednn_has_tiles() {
  static const auto limit = static_cast<int>(dnnl::get_effective_cpu_isa());
  constexpr auto kNeeded = static_cast<int>(dnnl::cpu_isa::avx512_core_amx);
  return current_isa() >= Isa::avx512_bf16 && (limit & kNeeded) == kNeeded;
}

void gemm_onednn(CpuStream& stream, const GemmArgs& args) {
  GemmCache::Impl& cache = stream.gemm_cache().impl();
  if (args.a.dtype == DType::f32 || onednn_multiplies_bf16()) {
    Primitive& primitive = cache.find(args);
    cache.execute(primitive, args, stream.scratch(primitive.scratch_bytes));
    return;
  }
  const bool narrow_c = args.c.dtype == DType::bf16;
  GemmArgs wide = args;
  const int64_t a_bytes = wide_bytes(args.a);
  const int64_t b_bytes = wide_bytes(args.b);
  const int64_t c_bytes = narrow_c ? wide_bytes(args.c) : 0;
  const int64_t bias_bytes = (args.c.cols * 4 + kAlign - 1) / kAlign * kAlign;
  // Create the primitive first, from shapes only: its scratchpad is part of the same request.
  wide.a = matrix(nullptr, DType::f32, args.a.rows, args.a.cols);
  wide.b = matrix(nullptr, DType::f32, args.b.rows, args.b.cols);
  if (narrow_c) wide.c = matrix(nullptr, DType::f32, args.c.rows, args.c.cols);
  if (args.bias) wide.bias.dtype = DType::f32;
  Primitive& primitive = cache.find(wide);
  const int64_t reserved = a_bytes + b_bytes + c_bytes + bias_bytes;
  char* scratch = static_cast<char*>(stream.scratch(reserved + primitive.scratch_bytes));
  wide.a = widen(args.a, scratch);
  wide.b = widen(args.b, scratch + a_bytes);
  if (narrow_c && args.beta != 0) {
    wide.c = widen(args.c, scratch + a_bytes + b_bytes);
  } else if (narrow_c) {
    wide.c.data = scratch + a_bytes + b_bytes;
  }
  if (args.bias && args.bias.dtype == DType::bf16) {
    wide.bias.data = scratch + a_bytes + b_bytes + c_bytes;
    convert_elements(args.bias.as<bf16>(), wide.bias.as<float>(), args.bias.count);
  }
  cache.execute(primitive, wide, scratch + reserved);
  if (narrow_c) narrow(wide.c, args.c);
}

int64_t gemm_any_scratch_bytes(const GemmArgs& args) {
  if (args.a.dtype == DType::f32) return 0;
  return wide_bytes(args.a) + wide_bytes(args.b) + wide_bytes(args.c);
}

void gemm_any(CpuStream& stream, const GemmArgs& args) {
  TUTTI_CHECK(!args.bias, "gemm_any: bias of {} is not supported", args.bias.count);
  GemmArgs wide = args;
  const bool narrow_c = args.c.dtype == DType::bf16;
  if (args.a.dtype == DType::bf16) {
    char* scratch = static_cast<char*>(stream.scratch(gemm_any_scratch_bytes(args)));
    wide.a = widen(args.a, scratch);
    wide.b = widen(args.b, scratch + wide_bytes(args.a));
    char* c = scratch + wide_bytes(args.a) + wide_bytes(args.b);
    if (narrow_c) {
      wide.c = args.beta != 0 ? widen(args.c, c) : matrix(c, DType::f32, args.c.rows, args.c.cols);
    }
  }
  const int64_t k = args.transpose_a ? args.a.rows : args.a.cols;
  const dnnl_status_t status =
      dnnl_sgemm(args.transpose_a ? 'T' : 'N', args.transpose_b ? 'T' : 'N', args.c.rows,
                 args.c.cols, k, 1.0F, wide.a.as<float>(), wide.a.ld, wide.b.as<float>(), wide.b.ld,
                 args.beta, wide.c.as<float>(), wide.c.ld);
  TUTTI_CHECK(status == dnnl_success, "oneDNN sgemm failed with status {}",
              static_cast<int>(status));
  if (narrow_c) narrow(wide.c, args.c);
}

}  // namespace tutti::engine
