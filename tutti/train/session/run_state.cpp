#include "tutti/train/session/run_state.h"

#include "tutti/base/hash.h"
#include "tutti/checkpoint/seal/seal.h"
#include "tutti/checkpoint/store/reader.h"
#include "tutti/checkpoint/store/safetensors.h"

namespace tutti::train {
namespace {

Json optional_number(const std::optional<double>& value) {
  return value ? Json(*value) : Json(nullptr);
}

const char* activation_name(spec::Activation activation) {
  switch (activation) {
    case spec::Activation::gelu: return "gelu";
    case spec::Activation::swiglu: return "swiglu";
    case spec::Activation::geglu: return "geglu";
    case spec::Activation::clamped_swiglu: return "clamped-swiglu";
  }
  return "";
}

// What other tensors a model has than most: nothing where it has none.
void add_parts(const spec::ModelConfig& model, Json& out) {
  if (model.biases != spec::ProjectionBiases{}) {
    out["biases"] = Json{{"qkv", model.biases.qkv},
                         {"output", model.biases.output},
                         {"up", model.biases.up},
                         {"down", model.biases.down}};
  }
  if (model.norm_placement != spec::NormPlacement::before) {
    out["norm_placement"] = model.norm_placement == spec::NormPlacement::both ? "both" : "after";
  }
  if (model.query_key_norm != spec::QueryKeyNorm::none) {
    out["query_key_norm"] = model.query_key_norm == spec::QueryKeyNorm::head ? "head" : "whole";
  }
  if (model.attention_sinks) out["attention_sinks"] = true;
  if (model.moe.biases) out["expert_biases"] = true;
  if (model.attention == spec::Attention::latent) {
    out["latent"] = Json{{"query_rank", model.latent.query_rank},
                         {"key_value_rank", model.latent.key_value_rank},
                         {"nope_head_dim", model.latent.nope_head_dim},
                         {"rope_head_dim", model.latent.rope_head_dim},
                         {"value_head_dim", model.latent.value_head_dim}};
  }
}

std::optional<double> read_optional(const Json& object, const char* key) {
  const Json& value = object.at(key);
  return value.is_number() ? std::optional(value.get<double>()) : std::nullopt;
}

RunState from_checkpoint_state(const checkpoint::State& saved, const std::string& origin) {
  const Json& training = saved.training;
  RunState state;
  state.step = saved.step;
  state.base = saved.base;
  state.teacher = saved.teacher;
  state.updates = json_get<int64_t>(training, "updates", origin);
  state.skipped = json_get<int64_t>(training, "skipped", origin);
  state.nonfinite_in_a_row = json_get<int64_t>(training, "nonfinite_in_a_row", origin);
  state.tokens = json_get<int64_t>(training, "tokens", origin);
  state.elapsed_seconds = json_get<double>(training, "elapsed_seconds", origin);
  const Json& loss = training.at("last_loss");
  state.last_loss = loss.is_number() ? loss.get<double>() : 0;
  state.validation_loss = read_optional(training, "validation_loss");
  state.evaluated_step = json_get<int64_t>(training, "evaluated_step", origin);
  state.best_validation_loss = read_optional(training, "best_validation_loss");
  state.time_to_target_seconds = read_optional(training, "time_to_target_seconds");
  if (training.contains("corpora")) state.corpora = training.at("corpora");
  if (training.contains("run_id")) {
    state.run_id = json_get<std::string>(training, "run_id", origin);
  }
  return state;
}

}  // namespace

Json describe_model(const spec::ModelConfig& model) {
  Json out = Json{{"layers", model.layers},
                  {"hidden", model.hidden},
                  {"heads", model.heads},
                  {"kv_heads", model.kv_heads},
                  {"head_dim", model.head_dim},
                  {"ffn", model.ffn},
                  {"vocabulary", model.vocabulary},
                  {"context", model.context},
                  {"norm", model.norm == spec::Norm::layer ? "layer" : "rms"},
                  {"activation", activation_name(model.activation)},
                  {"positions", model.positions == spec::Positions::learned ? "learned" : "rope"},
                  {"linear_bias", model.linear_bias},
                  {"norm_bias", model.norm_bias},
                  {"tied_embeddings", model.tied_embeddings}};
  add_parts(model, out);
  if (model.moe.experts > 0) {
    out["moe"] = Json{{"experts", model.moe.experts},
                      {"top_k", model.moe.top_k},
                      {"expert_ffn", model.moe.expert_ffn},
                      {"shared_experts", model.moe.shared_experts},
                      {"first_dense_layers", model.moe.first_dense_layers},
                      {"router_bias", model.moe.router_bias}};
  }
  return out;
}

Json describe_model(const spec::Recipe& recipe) {
  Json out = describe_model(recipe.model);
  if (recipe.lora.enabled()) {
    out["lora"] = Json{
        {"rank", recipe.lora.rank}, {"alpha", recipe.lora.alpha}, {"targets", recipe.lora.targets}};
  }
  return out;
}

checkpoint::State to_checkpoint_state(const RunState& state, const spec::Recipe& recipe) {
  checkpoint::State out;
  out.step = state.step;
  out.seed = recipe.train.seed;
  out.next_sample = state.step * recipe.batch.global;
  // keep-best compares this: only a checkpoint that was itself evaluated has it.
  if (state.evaluated_step == state.step) out.validation_loss = state.validation_loss;
  const std::string recipe_text = spec::to_yaml(recipe);
  out.recipe_hash = hash_hex(hash_text(recipe_text));
  out.base = state.base;
  out.teacher = state.teacher;
  out.model = describe_model(recipe);
  out.training = Json{{"updates", state.updates},
                      {"skipped", state.skipped},
                      {"nonfinite_in_a_row", state.nonfinite_in_a_row},
                      {"tokens", state.tokens},
                      {"elapsed_seconds", state.elapsed_seconds},
                      {"last_loss", state.last_loss},
                      {"validation_loss", optional_number(state.validation_loss)},
                      {"evaluated_step", state.evaluated_step},
                      {"best_validation_loss", optional_number(state.best_validation_loss)},
                      {"time_to_target_seconds", optional_number(state.time_to_target_seconds)}};
  if (!state.corpora.is_null()) out.training["corpora"] = state.corpora;
  if (!state.run_id.empty()) out.training["run_id"] = state.run_id;
  out.training["recipe"] = recipe_text;
  return out;
}

std::vector<checkpoint::TensorSource> checkpoint_tensors(const Trainer& trainer) {
  std::vector<checkpoint::TensorSource> out;
  for (const StateTensor& tensor : trainer.state().tensors()) {
    if (!tensor.saved) continue;
    checkpoint::TensorSource source{tensor.name, tensor.dtype, tensor.shape, tensor.data, {}, {}};
    if (tensor.shape != tensor.global_shape) {
      source.global_shape = tensor.global_shape;
      source.offset = tensor.offset;
    }
    out.push_back(std::move(source));
  }
  return out;
}

void load_state(checkpoint::Reader& reader, Trainer& trainer) {
  checkpoint::check_same_model(reader.manifest().state.model, describe_model(trainer.recipe()),
                               reader.path());
  const bool on_device = trainer.stream().memory() == engine::ArenaKind::device;
  std::vector<checkpoint::TensorTarget> targets;
  std::vector<char> here;
  for (const StateTensor& tensor : trainer.state().tensors()) {
    checkpoint::TensorTarget target = {tensor.name, tensor.dtype,        tensor.shape,
                                       tensor.data, tensor.global_shape, tensor.offset};
    if (!on_device) {
      targets.push_back(std::move(target));
      continue;
    }
    here.resize(static_cast<size_t>(checkpoint::checked_bytes(tensor.dtype, tensor.shape)));
    target.data = here.data();
    reader.load({target});
    trainer.state().store(tensor, here.data());
  }
  if (!on_device) reader.load(targets);
  trainer.state_changed();
}

std::optional<Restored> restore_newest(FileSystem& files, const std::string& folder,
                                       Trainer& trainer, const RankConsensus& consensus,
                                       PeerCopies* copies,
                                       const std::function<void(const std::string&)>& warn) {
  std::optional<checkpoint::Reader> reader;
  if (consensus.leads()) {
    reader = checkpoint::newest_valid(
        files, folder, [&](const std::string& path, const std::string& reason) {
          warn(fmt::format("skipping damaged checkpoint '{}': {}", path, reason));
        });
  }
  const int64_t found = consensus.of_leader(reader ? reader->manifest().state.step : int64_t{-1});
  std::optional<std::string> newer;
  if (copies != nullptr) newer = copies->find_newer(found, warn);
  if (found < 0 && !newer) return std::nullopt;
  if (newer || !reader) {
    reader.emplace(files, newer.value_or(join_path(folder, checkpoint::step_folder_name(found))));
  }
  if (consensus.leads()) {
    const auto key = checkpoint::save_key(files, trainer.recipe().checkpoint.key_file);
    const auto& seal = reader->manifest().seal;
    if (key && (!seal || seal->key_id != key->id())) {
      warn(fmt::format("'{}' is sealed with {}, not with key {} of checkpoint.key_file",
                       reader->path(), seal ? "key " + seal->key_id : "none", key->id()));
    }
  }
  load_state(*reader, trainer);
  return Restored{from_checkpoint_state(reader->manifest().state, reader->path()), reader->path(),
                  !newer};
}

}  // namespace tutti::train
