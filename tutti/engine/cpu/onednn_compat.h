// One face for the matrix products of oneDNN 2 and 3. Version 2 builds a primitive from an
// operation descriptor and keeps a scale in the attributes; version 3 builds it from the memory
// descriptors and reads the scale from memory at each execution. Everything else that Tutti calls
// is the same in both. Used by the sources beside it only; not thread-safe beyond what oneDNN is.
#pragma once

#include <dnnl.hpp>

namespace tutti::engine::onednn {

using Layout = dnnl::memory::desc;
using MatmulDesc = dnnl::matmul::primitive_desc;

// The first implementation of C[m,n] = A[m,k] B[k,n] (+ bias[1,n], where not null) whose name
// satisfies `wanted`; oneDNN's own first choice where none does. Throws dnnl::error where oneDNN
// has no implementation at all.
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
  // next_impl() reads the operation descriptor again, so it outlives the search.
  const auto operation =
      bias != nullptr ? dnnl::matmul::desc(a, b, *bias, c) : dnnl::matmul::desc(a, b, c);
  const auto create = [&] { return MatmulDesc(operation, attributes, engine); };
#endif
  MatmulDesc found = create();
  while (!wanted(found.impl_info_str())) {
    // Copies share one handle, which version 3 changes in place: the first choice is made anew.
    if (!found.next_impl()) return create();
  }
  return found;
}

// Where a primitive with scale_product() finds the scale among its arguments.
#if DNNL_VERSION_MAJOR >= 3
constexpr int kScaleArgument = DNNL_ARG_ATTR_SCALES | DNNL_ARG_SRC;
#else
constexpr int kScaleArgument = DNNL_ARG_ATTR_OUTPUT_SCALES;
#endif

// Multiplies A B by `alpha` before anything is added to it; for products without a bias. Returns
// the memory that goes with each execution as kScaleArgument, or none where the attributes hold
// all.
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
