#include "tutti/spec/recipe/lora.h"

#include <algorithm>
#include <set>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/text.h"

namespace tutti::spec {
namespace {

const std::vector<std::string> kTargets = {"qkv", "query",  "key",      "value",   "output",
                                           "mlp", "mlp.up", "mlp.gate", "mlp.down"};

bool has_target(const LoraConfig& lora, const char* name) {
  return std::find(lora.targets.begin(), lora.targets.end(), name) != lora.targets.end();
}

void check_target(const std::string& target, const ModelConfig& model) {
  if (std::find(kTargets.begin(), kTargets.end(), target) == kTargets.end()) {
    const std::string suggestion = nearest_word(target, kTargets);
    fail(ErrorKind::usage, "lora.targets: '{}' is unknown;{} accepted: {}", target,
         suggestion.empty() ? "" : " did you mean '" + suggestion + "'?", join(kTargets, ", "));
  }
  if (target == "mlp.gate" && !is_gated(model)) {
    fail(ErrorKind::usage,
         "lora.targets: mlp.gate needs model.activation: swiglu or geglu; drop it");
  }
  if (starts_with(target, "mlp") && model.moe.experts > 0) {
    fail(ErrorKind::usage,
         "lora.targets: {} has no meaning where model.moe routes to {} experts; accepted: qkv, "
         "query, key, value, output",
         target, model.moe.experts);
  }
}

}  // namespace

const char* projection_name(const ModelConfig& model, Projection projection) {
  switch (projection) {
    case Projection::qkv: return "attention.qkv";
    case Projection::output: return "attention.output";
    case Projection::up: return is_gated(model) ? "mlp.gate_up" : "mlp.up";
    case Projection::down: return "mlp.down";
  }
  return "";
}

int64_t projection_inputs(const ModelConfig& model, Projection projection) {
  switch (projection) {
    case Projection::qkv:
    case Projection::up: return model.hidden;
    case Projection::output: return model.heads * model.head_dim;
    case Projection::down: return model.ffn;
  }
  return 0;
}

int64_t projection_outputs(const ModelConfig& model, Projection projection) {
  switch (projection) {
    case Projection::qkv: return (model.heads + 2 * model.kv_heads) * model.head_dim;
    case Projection::up: return (is_gated(model) ? 2 : 1) * model.ffn;
    case Projection::output:
    case Projection::down: return model.hidden;
  }
  return 0;
}

std::vector<Adapter> adapters(const ModelConfig& model, const LoraConfig& lora) {
  std::vector<Adapter> list;
  if (!lora.enabled()) return list;
  const int64_t queries = model.heads * model.head_dim;
  const int64_t keys = model.kv_heads * model.head_dim;
  const bool whole_mlp = has_target(lora, "mlp");
  const auto add = [&](bool wanted, const char* name, Projection projection, int64_t first,
                       int64_t rows) {
    if (wanted) list.push_back({name, projection, first, rows});
  };
  const auto target = [&](const char* name) { return has_target(lora, name); };
  add(target("qkv"), "attention.qkv", Projection::qkv, 0, queries + 2 * keys);
  add(target("query"), "attention.query", Projection::qkv, 0, queries);
  add(target("key"), "attention.key", Projection::qkv, queries, keys);
  add(target("value"), "attention.value", Projection::qkv, queries + keys, keys);
  add(target("output"), "attention.output", Projection::output, 0, model.hidden);
  // The fused rows of swiglu: gate, then up.
  const bool gated = is_gated(model);
  add(gated && (whole_mlp || target("mlp.gate")), "mlp.gate", Projection::up, 0, model.ffn);
  add(whole_mlp || target("mlp.up"), "mlp.up", Projection::up, gated ? model.ffn : 0, model.ffn);
  add(whole_mlp || target("mlp.down"), "mlp.down", Projection::down, 0, model.hidden);
  return list;
}

int64_t adapter_columns(const ModelConfig& model, const LoraConfig& lora, Projection projection) {
  const std::vector<Adapter> list = adapters(model, lora);
  return lora.rank * std::count_if(list.begin(), list.end(), [&](const Adapter& adapter) {
           return adapter.projection == projection;
         });
}

Projection lowest_projection(const ModelConfig& model, const LoraConfig& lora) {
  const std::vector<Adapter> list = adapters(model, lora);
  TUTTI_CHECK(!list.empty(), "no adapters");
  return list.front().projection;
}

void resolve(LoraConfig& lora) {
  if (!lora.enabled()) return;
  if (lora.alpha == 0) lora.alpha = 2 * static_cast<double>(lora.rank);
  if (lora.targets.empty()) lora.targets = {"qkv", "output"};
}

void validate(const LoraConfig& lora, const ModelConfig& model) {
  if (lora.rank < 0) {
    fail(ErrorKind::usage, "lora.rank: {} is out of range; accepted: 0 or more", lora.rank);
  }
  if (!lora.enabled()) {
    if (lora != LoraConfig{}) {
      fail(ErrorKind::usage,
           "lora.rank: 0 (no adapters), but other keys of lora are set; give a rank such as 16, or "
           "drop them");
    }
    return;
  }
  if (!(lora.alpha > 0 && lora.alpha <= 1e6)) {
    fail(ErrorKind::usage, "lora.alpha: {} is out of range; accepted: above 0, up to 1e6",
         lora.alpha);
  }
  if (!(lora.dropout >= 0 && lora.dropout < 1)) {
    fail(ErrorKind::usage, "lora.dropout: {} is out of range; accepted: 0 to below 1",
         lora.dropout);
  }
  if (model.attention == Attention::latent) {
    fail(ErrorKind::usage, "lora: adapters of latent attention are not known; drop lora");
  }
  if (model.prediction_layers > 0) {
    fail(ErrorKind::usage,
         "lora: model.prediction_layers {} have no adapters; set model.prediction_layers=0",
         model.prediction_layers);
  }
  std::set<std::string> seen;
  for (const std::string& target : lora.targets) {
    check_target(target, model);
    if (!seen.insert(target).second) fail(ErrorKind::usage, "lora.targets: '{}' twice", target);
  }
  for (const auto& [whole, parts] : std::vector<std::pair<std::string, std::vector<std::string>>>{
           {"qkv", {"query", "key", "value"}}, {"mlp", {"mlp.up", "mlp.gate", "mlp.down"}}}) {
    for (const std::string& part : parts) {
      if (seen.count(whole) > 0 && seen.count(part) > 0) {
        fail(ErrorKind::usage, "lora.targets: {} covers {} already; drop one of the two", whole,
             part);
      }
    }
  }
}

}  // namespace tutti::spec
