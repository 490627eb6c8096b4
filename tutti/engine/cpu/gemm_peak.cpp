#include "tutti/engine/gemm_peak.h"

#include <algorithm>
#include <unordered_map>

#include "tutti/base/clock.h"
#include "tutti/base/rng.h"
#include "tutti/engine/arena.h"
#include "tutti/engine/backend.h"
#include "tutti/engine/cpu/gemm_onednn.h"
#include "tutti/engine/cpu/onednn_compat.h"

namespace tutti::engine {
namespace {

using dnnl::memory;

// Random operands: constant ones draw less power and run faster than real data.
void fill(void* data, DType dtype, int64_t count) {
  for (int64_t i = 0; i < count; ++i) {
    const float value = uniform01(philox(7, static_cast<uint64_t>(i))[0]) - 0.5F;
    if (dtype == DType::bf16) {
      static_cast<bf16*>(data)[i] = to_bf16(value);
    } else {
      static_cast<float*>(data)[i] = value;
    }
  }
}

memory packed(const memory::desc& wanted, const memory& plain, dnnl::stream& queue,
              const dnnl::engine& device) {
  memory out(wanted, device);
  dnnl::reorder(plain, out).execute(queue, const_cast<memory&>(plain), out);
  queue.wait();
  return out;
}

// Sizes that fill a device without occupying it for long; the host stand-in has one processor.
std::vector<int64_t> filling_sizes(const Backend& backend) {
  constexpr int kFewMultiprocessors = 8;
  const std::vector<DeviceInfo> devices = backend.devices();
  const bool few = !devices.empty() && devices.front().multiprocessors < kFewMultiprocessors;
  return few ? std::vector<int64_t>{128} : std::vector<int64_t>{4096, 8192};
}

// Measures the operation itself, whose library chooses algorithms by measurement. Several products
// are enqueued at once to hide launch overhead.
double device_gemm_peak(Stream& stream, DType dtype, int repeats) {
  constexpr int kAtOnce = 10;
  double best = 0;
  for (const int64_t size : filling_sizes(find_backend("cuda"))) {
    const int64_t bytes = size * size * dtype_bytes(dtype);
    const Arena a("peak a", bytes, ArenaKind::device);
    const Arena b("peak b", bytes, ArenaKind::device);
    const Arena c("peak c", bytes, ArenaKind::device);
    const Arena values("peak", bytes);
    fill(values.data(), dtype, size * size);
    stream.transfer(a.data(), values.data(), bytes);
    stream.transfer(b.data(), values.data(), bytes);
    const GemmArgs product = {.a = matrix(a.data(), dtype, size, size),
                              .b = matrix(b.data(), dtype, size, size),
                              .c = matrix(c.data(), dtype, size, size),
                              .transpose_b = true};
    for (int repeat = 0; repeat <= repeats; ++repeat) {
      stream.synchronize();
      const double begin = monotonic_seconds();
      for (int i = 0; i < kAtOnce; ++i) stream.ops().gemm(stream, product);
      stream.synchronize();
      const double seconds = (monotonic_seconds() - begin) / kAtOnce;
      const auto s = static_cast<double>(size);
      if (repeat > 0) best = std::max(best, 2 * s * s * s / seconds);
    }
  }
  return best;
}

}  // namespace

double measure_gemm_peak(Stream& stream, DType dtype, const std::vector<int64_t>& sizes,
                         int repeats) {
  if (stream.memory() == ArenaKind::device) return device_gemm_peak(stream, dtype, repeats);
  if (dtype == DType::bf16 && !onednn_multiplies_bf16()) dtype = DType::f32;
  stream.synchronize();
  const dnnl::engine device(dnnl::engine::kind::cpu, 0);
  dnnl::stream queue(device);
  const auto type = dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
  const int64_t largest = *std::max_element(sizes.begin(), sizes.end());
  Arena a_data("peak a", largest * largest * dtype_bytes(dtype));
  Arena c_data("peak c", largest * largest * dtype_bytes(dtype));
  fill(a_data.data(), dtype, largest * largest);

  double best = 0;
  for (const int64_t size : sizes) {
    const memory::dims shape = {size, size};
    const memory::desc plain(shape, type, memory::format_tag::ab);
    const memory::desc any(shape, type, memory::format_tag::any);
    const memory source(plain, device, a_data.data());
    for (const bool free_layout : {false, true}) {
      const memory::desc& wanted = free_layout ? any : plain;
      const dnnl::matmul::primitive_desc description = onednn::find_matmul(
          device, wanted, wanted, nullptr, plain, {}, [](const char*) { return true; });
      const dnnl::matmul product(description);
      const std::unordered_map<int, memory> arguments = {
          {DNNL_ARG_SRC, packed(description.src_desc(), source, queue, device)},
          {DNNL_ARG_WEIGHTS, packed(description.weights_desc(), source, queue, device)},
          {DNNL_ARG_DST, memory(description.dst_desc(), device, c_data.data())}};
      for (int repeat = 0; repeat <= repeats; ++repeat) {
        const double begin = monotonic_seconds();
        product.execute(queue, arguments);
        queue.wait();
        const double seconds = monotonic_seconds() - begin;
        const auto s = static_cast<double>(size);
        if (repeat > 0) best = std::max(best, 2 * s * s * s / seconds);  // the first one warms up
      }
    }
  }
  return best;
}

}  // namespace tutti::engine
