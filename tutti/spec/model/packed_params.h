// Which parameters inference may keep packed to 8 or 4 bits (base/packed_weights.h): the
// projections of blocks and experts, the head, and the token embeddings where the head is tied to
// them. Of these two the kind is int8 also where the others are int4, as every logit and every
// token depends on them. Routers, norms, biases, positions, adapters, embeddings that are only
// looked up and latent attention's projection up of keys and values, which generation applies per
// head, are not packed.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "tutti/base/packed_weights.h"
#include "tutti/spec/model/config.h"

namespace tutti::spec {

// The kind in which the parameter `name` (spec/model/params.h) of logical `shape` is packed where
// `wanted` is asked for; nullopt: it is not.
std::optional<PackKind> pack_kind_of(const ModelConfig& model, std::string_view name,
                                     const std::vector<int64_t>& shape, PackKind wanted);

}  // namespace tutti::spec
