// The buffers that layers share in turn on a rank that holds only shards of gradients and weights
// (spec/mesh/zero_layers.h), and the parameters of a stage, wherever they are in memory.
#pragma once

#include "tutti/engine/tensor.h"
#include "tutti/model/memory.h"
#include "tutti/model/parameters.h"
#include "tutti/spec/mesh/mesh.h"
#include "tutti/spec/mesh/zero_layers.h"
#include "tutti/spec/model/params.h"

namespace tutti::model {

engine::Vector gathered_buffer(const Memory& memory, const spec::ZeroLayer& layer);  // c
engine::Vector gradient_buffer(const Memory& memory, const spec::ZeroLayer& layer);  // f32

// `layout` and `memory` belong to one rank of `mesh`. Without an arena of gradients there are none.
Parameters bind_parameters(const spec::ParamLayout& layout, const spec::Mesh& mesh,
                           const Memory& memory, DType compute);

}  // namespace tutti::model
