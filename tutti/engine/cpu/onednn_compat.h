// A common interface to the matmul primitives of oneDNN 2 and 3. Version 2 creates a primitive from
// an operation descriptor and stores a scale in the attributes; version 3 creates it from memory
// descriptors and reads the scale from memory at each execution. All other calls of Tutti are the
// same in both. Internal to this folder; as thread-safe as oneDNN.
#pragma once

#include <dnnl.hpp>

namespace tutti::engine::onednn {

using Layout = dnnl::memory::desc;
using MatmulDesc = dnnl::matmul::primitive_desc;

// The first implementation of C[m,n] = A[m,k] B[k,n] (+ bias[1,n], if not null) whose name
// satisfies `wanted`, or oneDNN's default choice if none does. Throws dnnl::error if oneDNN has no
// implementation at all.
template <typename Wanted>
MatmulDesc find_matmul(const dnnl::engine& engine, const Layout& a, const Layout& b,
                       const Layout* bias, const Layout& c, const dnnl::primitive_attr& attributes,
                       const Wanted& wanted) {
#if DNNL_VERSION_MAJOR >= 3
  const auto create = [&] {
    return bias != nullptr ? MatmulDesc(engine, a, b, *bias, c, attributes)
                           : MatmulDesc(engine, a, b, c, attributes);
  };
#else
  // next_impl() reads the operation descriptor again, so it must outlive the search.
  const auto operation =
      bias != nullptr ? dnnl::matmul::desc(a, b, *bias, c) : dnnl::matmul::desc(a, b, c);
  const auto create = [&] { return MatmulDesc(operation, attributes, engine); };
#endif
  MatmulDesc found = create();
  while (!wanted(found.impl_info_str())) {
    // Copies share one handle, which version 3 modifies in place: the default is created again.
    if (!found.next_impl()) return create();
  }
  return found;
}

// Argument index of the scale of a primitive with scale_product().
#if DNNL_VERSION_MAJOR >= 3
constexpr int kScaleArgument = DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC;
#else
constexpr int kScaleArgument = DNNL_ARG_ATTR_OUTPUT_SCALES;
#endif

// Multiplies A B by `alpha` before C is added; for products without a bias. Returns the memory to
// pass to each execution as kScaleArgument, or empty memory if the attributes hold the scale.
inline dnnl::memory scale_product(dnnl::primitive_attr& attributes, float alpha,
                                  [[maybe_unused]] const dnnl::engine& engine) {
#if DNNL_VERSION_MAJOR >= 3
  attributes.set_scales_mask(DNNL_ARG_SRC, 0);
  dnnl::memory scale({{1}, dnnl::memory::data_type::f32, dnnl::memory::dims{1}}, engine);
  *static_cast<float*>(scale.get_data_handle()) = alpha;
  return scale;
#else
  attributes.set_output_scales(0, {alpha});
  return {};
#endif
}

}  // namespace tutti::engine::onednn
