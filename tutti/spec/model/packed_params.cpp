#include "tutti/spec/model/packed_params.h"

namespace tutti::spec {

std::optional<PackKind> pack_kind_of(const ModelConfig& model, std::string_view name,
                                     const std::vector<int64_t>& shape, PackKind wanted) {
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  if (shape.size() < 2 || !name.ends_with(".weight")) return {};
  if (has(".lora_a.") || has(".lora_b.") || has(".router.")) return {};
  if (has(".attention.kv_up.")) return {};
  if (name == "embedding.position.weight") return {};
  const bool embedding = name == "embedding.token.weight";
  if (embedding && !model.tied_embeddings) return {};
  return embedding || name == "head.weight" ? PackKind::int8 : wanted;
}

}  // namespace tutti::spec
