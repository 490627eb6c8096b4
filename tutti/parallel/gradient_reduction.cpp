#include "tutti/parallel/gradient_reduction.h"

#include <string>

#include "tutti/parallel/gradient_sync.h"
#include "tutti/parallel/layer_gradients.h"
#include "tutti/parallel/range.h"

namespace tutti::parallel {

std::unique_ptr<GradientReduction> make_gradient_reduction(const spec::Recipe& recipe,
                                                           const spec::ParamLayout& layout,
                                                           const Ranks& ranks,
                                                           const model::Memory& memory) {
  const spec::Mesh& mesh = recipe.parallel;
  const std::string tied =
      ranks.pipeline_ends == nullptr ? "" : spec::tied_copy(recipe, {.pp = mesh.pp - 1});
  if (spec::by_layer(mesh)) {
    return std::make_unique<LayerGradients>(layout, mesh, ranks, memory, tied);
  }
  const engine::Vector gradients =
      engine::vector(memory.arena("gradients").data(), DType::f32, layout.trainable_elements);
  engine::Vector table;
  if (!tied.empty()) {
    const spec::PlacedParam& placed = layout.find(tied);
    table = range(gradients, placed.element_offset, placed.shard.count());
  }
  return std::make_unique<GradientSync>(layout, mesh, ranks, gradients, table);
}

}  // namespace tutti::parallel
