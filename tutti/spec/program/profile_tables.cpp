#include "tutti/spec/program/profile_tables.h"

namespace tutti::spec {
namespace {

using enum Element;
using enum Split;
constexpr Rows kTokens = Rows::tokens;
constexpr Rows kRoutedRows = Rows::routed;
constexpr Parts kAttentionCore = kPartAttention | kPartCore;
constexpr Parts kMlpActivation = kPartMlp | kPartActivation;

void append(std::vector<SavedTensor>& list, const std::vector<SavedTensor>& more) {
  list.insert(list.end(), more.begin(), more.end());
}

// Kept by latent attention, up to the operands of the attention itself.
const std::vector<SavedTensor> kLatentTensors = {
    {"attention.query_down", kTokens, Width::latent_query_down, compute, rows, kCompressedQuery},
    {"attention.query_norm.rstd", kTokens, Width::one, f32, rows, kCompressedQuery},
    {"attention.query_norm.y", kTokens, Width::latent_query_down, compute, rows, kCompressedQuery},
    {"attention.query", kTokens, Width::latent_query, compute, columns, kLatent, kPartAttention},
    {"attention.kv_down", kTokens, Width::latent_kv_down, compute, rows, kLatent},
    {"attention.kv_norm.rstd", kTokens, Width::one, f32, rows, kLatent},
    {"attention.kv_norm.y", kTokens, Width::latent_kv_down, compute, rows, kLatent},
    {"attention.kv_up", kTokens, Width::latent_kv_up, compute, columns, kLatent, kPartAttention},
    {"attention.key", kTokens, Width::latent_key, compute, columns, kLatent, kPartAttention},
};

// The same as this program keeps it: every rank has what is compressed of all rows, and keys are
// beside queries and values. The first columns of attention.kv_norm.y are the rotated ones.
const std::vector<SavedTensor> kExecutedLatentTensors = {
    {"attention.query_down", kTokens, Width::latent_query_down, compute, none, kCompressedQuery},
    {"attention.query_norm.rstd", kTokens, Width::one, f32, none, kCompressedQuery},
    {"attention.query_norm.y", kTokens, Width::latent_query_down, compute, none, kCompressedQuery},
    {"attention.kv_down", kTokens, Width::latent_kv_down, compute, none, kLatent},
    {"attention.kv_norm.rstd", kTokens, Width::one, f32, none, kLatent},
    {"attention.kv_norm.y", kTokens, Width::latent_kv_down, compute, none, kLatent},
    {"attention.qkv", kTokens, Width::latent_qkv, compute, columns, kLatent, kPartAttention},
};

// Inputs of the norms of queries and keys, and of branches.
const std::vector<SavedTensor> kQueryKeyTensors = {
    {"attention.query_key", kTokens, Width::query_key, compute, columns, kQueryKeyNorm,
     kPartAttention},
    {"attention.query_key.rstd", kTokens, Width::normed, f32, columns, kQueryKeyNorm,
     kPartAttention},
};
const std::vector<SavedTensor> kAttentionBranch = {
    {"attention.branch", kTokens, Width::hidden, compute, rows, kBranchNorms},
    {"attention.branch.rstd", kTokens, Width::one, f32, rows, kBranchNorms},
};
const std::vector<SavedTensor> kMlpBranch = {
    {"mlp.branch", kTokens, Width::hidden, compute, rows, kBranchNorms},
    {"mlp.branch.rstd", kTokens, Width::one, f32, rows, kBranchNorms},
};

// Kept by a mixture of experts after the norm. Routing results of all rows, or of a rank's own.
std::vector<SavedTensor> expert_tensors(Split choices) {
  return {
      {"moe.probabilities", kTokens, Width::experts, f32, rows, kRouted},
      {"moe.lse", kTokens, Width::one, f32, rows, kRouted},
      {"moe.experts", kTokens, Width::top_k, i32, choices, kRouted},
      {"moe.weights", kTokens, Width::top_k, f32, choices, kRouted},
      {"moe.positions", kTokens, Width::top_k, i32, choices, kRouted},
      {"moe.counts", Rows::sequences, Width::experts, i32, none, kRouted},
      {"moe.offsets", Rows::single, Width::expert_bounds, i32, none, kRouted},
      {"moe.received", Rows::single, Width::expert_bounds, i32, none, kRouted | kExchange},
      {"moe.input", kRoutedRows, Width::hidden, compute, none, kRouted},
      {"moe.up", kRoutedRows, Width::expert_up, compute, columns, kRouted, kPartMlp},
      {"moe.act", kRoutedRows, Width::expert_ffn, compute, columns, kRouted, kMlpActivation},
      {"moe.output", Rows::copies, Width::hidden, compute, none, kRouted},
      {"moe.shared.up", kTokens, Width::shared_up, compute, columns, kShared, kPartMlp},
      {"moe.shared.act", kTokens, Width::shared_ffn, compute, columns, kShared, kMlpActivation},
  };
}

}  // namespace

Profile make_tutti_profile() {
  Profile p;
  p.name = "tutti";
  p.executable = true;
  p.pipelined_zero = PipelinedZero::micro_batch;
  p.context_exchange = ContextExchange::ring;
  p.loss_chunk_bytes = int64_t{128} << 20;
  p.loss_chunk_rows = 1024;  // enough for the projections' speed, small enough for caches
  p.block = {
      {"residual_in", kTokens, Width::hidden, f32, rows, kAlways},
      {"norm1.mean", kTokens, Width::one, f32, rows, kLayerNorm},
      {"norm1.rstd", kTokens, Width::one, f32, rows, kInputNorms},
      {"norm1.y", kTokens, Width::hidden, compute, rows, kAlways, kPartNorms},
      {"attention.qkv.lora", kTokens, Width::lora_qkv, compute, none, kGrouped, kPartAttention},
      {"attention.qkv", kTokens, Width::qkv, compute, columns, kGrouped, kPartAttention},
  };
  append(p.block, kQueryKeyTensors);
  append(p.block, kExecutedLatentTensors);
  append(p.block, {{"attention.lse", kTokens, Width::heads, f32, columns, kAlways, kAttentionCore},
                   {"attention.out", kTokens, Width::attention_out, compute, columns, kAlways,
                    kAttentionCore},
                   {"attention.output.lora", kTokens, Width::lora_output, compute, none, kGrouped},
                   {"residual_mid", kTokens, Width::hidden, f32, rows, kAlways},
                   {"norm2.mean", kTokens, Width::one, f32, rows, kLayerNorm},
                   {"norm2.rstd", kTokens, Width::one, f32, rows, kInputNorms},
                   {"norm2.y", kTokens, Width::hidden, compute, rows, kAlways, kPartNorms},
                   {"mlp.up.lora", kTokens, Width::lora_up, compute, none, kDense, kPartMlp},
                   {"mlp.pre", kTokens, Width::up, compute, columns, kDense, kPartMlp},
                   {"mlp.act", kTokens, Width::ffn, compute, columns, kDense, kMlpActivation},
                   {"mlp.down.lora", kTokens, Width::lora_down, compute, none, kDense}});
  append(p.block, kAttentionBranch);
  append(p.block, kMlpBranch);
  append(p.block, expert_tensors(none));
  // The last projection is not recomputed, so its adapter's saved product is kept.
  p.checkpoint = {{"residual_in", kTokens, Width::hidden, f32, rows, kAlways},
                  {"mlp.down.lora", kTokens, Width::lora_down, compute, none, kDense}};
  append(p.checkpoint, kMlpBranch);  // nor is what comes after it
  p.head = {
      {"residual", kTokens, Width::hidden, f32, rows, kAlways},
      {"norm.mean", kTokens, Width::one, f32, rows, kLayerNorm},
      {"norm.rstd", kTokens, Width::one, f32, rows, kAlways},
      {"norm.y", kTokens, Width::hidden, compute, rows, kAlways},
      {"d_final", kTokens, Width::hidden, compute, none, kAlways},
  };
  p.forward_workspace = {
      {"branch", kTokens, Width::hidden, compute, none, kAlways},
      {"attention.kv_up", kTokens, Width::latent_kv_up, compute, columns, kLatent},
      {"rope.frequency", Rows::single, Width::rope_half, f32, none, kRope},
      {"rope.window_frequency", Rows::single, Width::rope_half, f32, none, kWindowRope},
  };
  p.workspace = {
      {"branch", kTokens, Width::hidden, compute, none, kAlways},
      {"d_residual", kTokens, Width::hidden, f32, rows, kAlways},
      {"d_branch.0", kTokens, Width::hidden, compute, none, kAlways},
      {"d_branch.1", kTokens, Width::hidden, compute, none, kAlways},
      {"d_branch_attention", kTokens, Width::hidden, compute, none, kAlways},
      {"d_act", kTokens, Width::ffn, compute, columns, kDense},
      {"d_pre", kTokens, Width::up, compute, columns, kSwiglu | kDense},
      {"moe.d_output", kRoutedRows, Width::hidden, compute, none, kRouted},
      {"moe.d_act", kRoutedRows, Width::expert_ffn, compute, columns, kRouted},
      {"moe.d_up", kRoutedRows, Width::expert_up, compute, columns, kRouted | kSwiglu},
      {"moe.d_input", kRoutedRows, Width::hidden, compute, none, kRouted},
      {"moe.copies", Rows::copies, Width::hidden, compute, none, kRouted | kExchange},
      {"moe.sizes", Rows::single, Width::experts, i32, none, kRouted | kCounted},
      {"moe.parts", Rows::all_parts, Width::experts, i32, none, kRouted | kContext},
      {"moe.before", Rows::sequence_parts, Width::experts, i32, none, kRouted | kContext},
      {"moe.d_weights", kTokens, Width::top_k, f32, none, kRouted},
      {"moe.d_logits", kTokens, Width::experts, compute, rows, kRouted},
      {"moe.shared.d_act", kTokens, Width::shared_ffn, compute, columns, kShared},
      {"moe.shared.d_up", kTokens, Width::shared_up, compute, columns, kShared | kSwiglu},
      {"d_norm1", kTokens, Width::hidden, compute, none, kAlways},
      {"d_norm2", kTokens, Width::hidden, compute, none, kAlways},
      {"d_attention", kTokens, Width::attention_out, compute, columns, kAlways},
      {"d_qkv", kTokens, Width::qkv, compute, columns, kGrouped},
      {"d_qkv", kTokens, Width::latent_qkv, compute, columns, kLatent},
      {"attention.kv_up", kTokens, Width::latent_kv_up, compute, columns, kLatent},
      {"d_kv_down", kTokens, Width::latent_kv_down, compute, none, kLatent},
      {"d_query_down", kTokens, Width::latent_query_down, compute, none, kCompressedQuery},
      {"lora.d_qkv", kTokens, Width::lora_qkv, compute, none, kGrouped},
      {"lora.d_output", kTokens, Width::lora_output, compute, none, kGrouped},
      {"lora.d_up", kTokens, Width::lora_up, compute, none, kDense},
      {"lora.d_down", kTokens, Width::lora_down, compute, none, kDense},
      {"lora.input", kTokens, Width::lora_input, compute, none, kGrouped},
      {"delta", kTokens, Width::heads, f32, columns, kAlways},
      {"attention.kv.0", kTokens, Width::key_value, compute, columns, kGrouped | kContext},
      {"attention.kv.1", kTokens, Width::key_value, compute, columns, kGrouped | kContext},
      {"attention.total", kTokens, Width::attention_out, f32, columns, kGrouped | kContext},
      {"attention.d_kv.own", kTokens, Width::key_value, f32, columns, kGrouped | kContext},
      {"attention.d_kv.0", kTokens, Width::key_value, f32, columns, kGrouped | kContext},
      {"attention.d_kv.1", kTokens, Width::key_value, f32, columns, kGrouped | kContext},
      {"rope.frequency", Rows::single, Width::rope_half, f32, none, kRope},
      {"rope.window_frequency", Rows::single, Width::rope_half, f32, none, kWindowRope},
  };
  // The tensors that block_backward_weight reads (model/block.h).
  p.delayed = {
      {"d_branch", kTokens, Width::hidden, compute, none, kAlways},
      {"d_branch_attention", kTokens, Width::hidden, compute, none, kAlways},
      {"d_act", kTokens, Width::ffn, compute, columns, kDense | kGelu},
      {"d_pre", kTokens, Width::up, compute, columns, kDense | kSwiglu},
      {"moe.d_output", kRoutedRows, Width::hidden, compute, none, kRouted},
      {"moe.d_act", kRoutedRows, Width::expert_ffn, compute, columns, kRouted | kGelu},
      {"moe.d_up", kRoutedRows, Width::expert_up, compute, columns, kRouted | kSwiglu},
      {"moe.d_logits", kTokens, Width::experts, compute, rows, kRouted},
      {"moe.shared.d_act", kTokens, Width::shared_ffn, compute, columns, kShared | kGelu},
      {"moe.shared.d_up", kTokens, Width::shared_up, compute, columns, kShared | kSwiglu},
      {"d_norm1", kTokens, Width::hidden, compute, none, kAlways},
      {"d_norm2", kTokens, Width::hidden, compute, none, kAlways},
      {"d_qkv", kTokens, Width::qkv, compute, columns, kGrouped},
      {"lora.d_qkv", kTokens, Width::lora_qkv, compute, none, kGrouped},
      {"lora.d_output", kTokens, Width::lora_output, compute, none, kGrouped},
      {"lora.d_up", kTokens, Width::lora_up, compute, none, kDense},
      {"lora.d_down", kTokens, Width::lora_down, compute, none, kDense},
  };
  return p;
}

namespace {

Profile make_megatron_profile(const char* name) {
  Profile p;
  p.name = name;
  p.residual = DType::bf16;
  p.selective_parts = kPartCore;
  p.repeats_whole_forward = true;
  p.vocabulary_multiple = 128;
  p.loss_keeps_compute_logits = true;
  return p;
}

}  // namespace

Profile make_megatron_2022_profile() {
  Profile p = make_megatron_profile("megatron-2022");
  p.stores_attention_matrix = true;
  p.fused_residual = false;
  // Korthikanti et al. 2022, section 4.1: s b h (34 + 5 a s / h) bytes in all. Masks have one byte.
  p.block = {
      {"norm1.input", kTokens, Width::hidden, compute, rows, kAlways},
      {"norm1.y", kTokens, Width::hidden, compute, rows, kAlways, kPartNorms},
      {"attention.query_key", kTokens, Width::query_key, compute, columns, kGrouped,
       kPartAttention},
      {"attention.value", kTokens, Width::value, compute, columns, kGrouped, kPartAttention},
  };
  append(p.block, kLatentTensors);
  append(p.block, {{"attention.softmax", kTokens, Width::attention_matrix, compute, columns,
                    kAlways, kAttentionCore},
                   {"attention.mask", kTokens, Width::attention_matrix, mask, columns, kAlways,
                    kAttentionCore},
                   {"attention.dropped", kTokens, Width::attention_matrix, compute, columns,
                    kAlways, kAttentionCore},
                   {"attention.out", kTokens, Width::attention_out, compute, columns, kAlways},
                   {"attention.output_mask", kTokens, Width::hidden, mask, rows, kAlways},
                   {"norm2.input", kTokens, Width::hidden, compute, rows, kAlways},
                   {"norm2.y", kTokens, Width::hidden, compute, rows, kAlways, kPartNorms},
                   {"mlp.up", kTokens, Width::up, compute, columns, kDense, kPartMlp},
                   {"mlp.act", kTokens, Width::ffn, compute, columns, kDense, kMlpActivation}});
  append(p.block, kQueryKeyTensors);
  append(p.block, kAttentionBranch);
  append(p.block, kMlpBranch);
  append(p.block, expert_tensors(rows));
  append(p.block, {{"mlp.output_mask", kTokens, Width::hidden, mask, rows, kAlways}});
  p.checkpoint = {{"norm1.input", kTokens, Width::hidden, compute, rows, kAlways}};
  p.embedding = {{"embedding.mask", kTokens, Width::hidden, mask, rows, kAlways}};
  p.head = {
      {"norm.input", kTokens, Width::hidden, compute, rows, kAlways},
      {"norm.y", kTokens, Width::hidden, compute, rows, kAlways},
  };
  p.workspace = {
      {"d_residual", kTokens, Width::hidden, compute, rows, kAlways},
      {"gathered", kTokens, Width::hidden, compute, none, kAlways},
      {"d_up", kTokens, Width::up, compute, columns, kDense},
  };
  return p;
}

// Before sequence parallelism: SC21 (arXiv 2104.04473).
Profile make_megatron_2021_profile() {
  Profile p = make_megatron_2022_profile();
  p.name = "megatron-2021";
  p.sequence_parallel = false;
  // ZeRO-3 was DeepSpeed's (microsoft/DeepSpeed, deepspeed/runtime/zero/config.py:
  // stage3_max_live_parameters, 1e9): weights are gathered for one module at a time.
  p.gathered_elements = 1'000'000'000;
  return p;
}

// DeepSpeed's optimizer of 16-bit runs reduces the gradients in 16 bits
// (microsoft/DeepSpeed: communication_data_type).
Profile make_megatron_deepspeed_profile() {
  Profile p = make_megatron_2021_profile();
  p.name = "megatron-deepspeed";
  p.gradient = DType::bf16;
  return p;
}

Profile make_megatron_te_profile() {
  Profile p = make_megatron_profile("megatron-te");
  // TransformerEngine, pytorch/module/layernorm_linear.py: the quantized input is gathered.
  p.gathers_narrow = true;
  p.narrow_kept_inputs = true;
  p.block = {
      {"norm1.input", kTokens, Width::hidden, compute, rows, kAlways},
      {"norm1.statistics", kTokens, Width::one, f32, rows, kAlways},
      {"norm1.y", kTokens, Width::hidden, compute, rows, kAlways, kPartNorms},
      {"attention.qkv", kTokens, Width::qkv, compute, columns, kGrouped, kPartAttention},
  };
  append(p.block, kLatentTensors);
  append(p.block, {{"attention.lse", kTokens, Width::heads, f32, columns, kAlways, kAttentionCore},
                   {"attention.out", kTokens, Width::attention_out, compute, columns, kAlways},
                   {"attention.output_mask", kTokens, Width::hidden, mask, rows, kDropout},
                   {"norm2.input", kTokens, Width::hidden, compute, rows, kAlways},
                   {"norm2.statistics", kTokens, Width::one, f32, rows, kAlways},
                   {"norm2.y", kTokens, Width::hidden, compute, rows, kAlways, kPartNorms},
                   {"mlp.up", kTokens, Width::up, compute, columns, kDense, kPartMlp},
                   {"mlp.act", kTokens, Width::ffn, compute, columns, kDense, kMlpActivation},
                   {"mlp.output_mask", kTokens, Width::hidden, mask, rows, kDropout}});
  append(p.block, kQueryKeyTensors);
  append(p.block, kAttentionBranch);
  append(p.block, kMlpBranch);
  append(p.block, expert_tensors(rows));
  p.checkpoint = {{"norm1.input", kTokens, Width::hidden, compute, rows, kAlways}};
  p.embedding = {{"embedding.mask", kTokens, Width::hidden, mask, rows, kDropout}};
  p.head = {
      {"norm.input", kTokens, Width::hidden, compute, rows, kAlways},
      {"norm.statistics", kTokens, Width::one, f32, rows, kAlways},
      {"norm.y", kTokens, Width::hidden, compute, rows, kAlways},
  };
  p.workspace = {
      {"d_residual", kTokens, Width::hidden, compute, rows, kAlways},
      {"gathered", kTokens, Width::hidden, compute, none, kAlways},
      {"d_up", kTokens, Width::up, compute, columns, kDense},
  };
  return p;
}

// Facts: MooreThreads/SimuMax, docs/b200/b200_real_repro_guide.md and its memory model, of
// Megatron-LM 23e00ed0 with Transformer Engine 2.11.
Profile make_megatron_te_2_11_profile() {
  Profile p = make_megatron_te_profile();
  p.name = "megatron-te-2.11";
  p.loss_keeps_compute_logits = false;
  p.loss_in_compute_type = true;
  p.weight_gradient_stand_ins = true;
  p.context_exchange = ContextExchange::heads;
  // Attention keeps its own output, besides the input of the projection after the exchange.
  p.block.push_back({"attention.exchanged", kTokens, Width::attention_out, compute, columns,
                     kContext, kPartAttention});
  return p;
}

// Megatron-Bridge's recipes of 2025 and 2026: DeepEP or HybridEP dispatch (NVIDIA/Megatron-LM,
// megatron/core/transformer/moe/README.md).
Profile make_megatron_bridge_profile() {
  Profile p = make_megatron_te_2_11_profile();
  p.name = "megatron-bridge";
  p.context_exchange = ContextExchange::gather;
  p.dispatch_once_per_domain = true;
  // Of all its measured recipes (v0.4.1, scripts/performance/configs: grad_reduce_in_fp32 False).
  p.gradient = DType::bf16;
  // NVIDIA-NeMo/Megatron-Bridge, src/megatron/bridge/training/mixed_precision.py,
  // bf16_with_mxfp8_mixed: fp8_param_gather and reuse_grad_buf_for_mxfp8_param_ag.
  p.narrow_weights = true;
  return p;
}

// Gradients stay in 16 bits (mlcommons/training_results_v5.0: NVIDIA/benchmarks/llama31_405b/
// implementations/eos-dfw_n64_ngc25.01_nemo/pretrain.py, grad_reduce_in_fp32=False).
Profile make_nemo_mlperf_profile() {
  Profile p = make_megatron_te_profile();
  p.name = "nemo-mlperf";
  p.gradient = DType::bf16;
  return p;
}

// Tuning with adapters in MLPerf submissions of 2024 and 2025: mlcommons/training_results_v4.0 and
// v5.0, NVIDIA/benchmarks/llama2_70b_lora/implementations:
// conf/megatron_gpt_peft_tuning_config.yaml (fp8_params, disable_parameter_transpose_cache,
// activation_func_fp8_input_store), and v5.1 config_common_fp4.sh (PRE_QUANTIZED_MODEL).
Profile make_nemo_lora_profile() {
  Profile p = make_nemo_mlperf_profile();
  p.name = "nemo-lora";
  p.narrow_activation_input = true;
  p.narrow_frozen_weights = true;
  return p;
}

// Llama 3 Herd of Models (arXiv 2407.21783), section 3.3.2: FSDP shards optimizer states and
// gradients, and does not reshard weights after the forward pass. Which gradients a pipeline keeps:
// Chu et al. 2025 (Scaling Llama 3 Training, ISCA), not re-read: with few micro-batches a virtual
// stage's are reduced after its consecutive micro-batches.
Profile make_llama3_profile() {
  Profile p = make_megatron_te_profile();
  p.name = "llama3";
  p.pipelined_zero = PipelinedZero::round;
  return p;
}

// pytorch/torchtitan, torchtitan/parallelisms/parallelize_llama.py (December 2024): FSDP2, which
// with pipelining does not reshard weights after the forward pass (reshard_after_forward "default")
// and sums unreduced gradients until the last micro-batch (pytorch/pytorch,
// torch/distributed/pipelining/stage.py: set_requires_gradient_sync).
// "selective" by operations lists what is saved: the outputs of the attention and of every other
// matrix product, in the order of the model. Of a block's seven products these are queries, values,
// gate and the last; keys, the attention's output projection and up run again. The loss reads full
// f32 logits (torchtitan/train.py: pred.float()), and keeps their logarithms until it writes the
// gradient.
Profile make_torchtitan_profile() {
  Profile p = make_megatron_te_profile();
  p.name = "torchtitan";
  p.pipelined_zero = PipelinedZero::step;
  p.narrow_kept_inputs = false;  // torchao: linears keep 16-bit inputs and quantize them again
  p.repeats_whole_forward = false;
  p.selective_parts = kPartNorms | kPartActivation | kPartAlternate;
  p.loss_keeps_gradient = true;
  p.block = {
      {"norm1.input", kTokens, Width::hidden, compute, rows, kAlways},
      {"norm1.statistics", kTokens, Width::one, f32, rows, kAlways},
      {"norm1.y", kTokens, Width::hidden, compute, rows, kAlways, kPartNorms},
      {"attention.query", kTokens, Width::attention_out, compute, columns, kGrouped,
       kPartAttention},
      {"attention.key", kTokens, Width::value, compute, columns, kGrouped,
       kPartAttention | kPartAlternate},
      {"attention.value", kTokens, Width::value, compute, columns, kGrouped, kPartAttention},
      {"attention.rotated", kTokens, Width::query_key, compute, columns, kGrouped | kRope,
       kPartAttention | kPartAlternate},
  };
  append(p.block, kLatentTensors);
  append(p.block, {{"attention.lse", kTokens, Width::heads, f32, columns, kAlways, kAttentionCore},
                   {"attention.out", kTokens, Width::attention_out, compute, columns, kAlways},
                   {"norm2.input", kTokens, Width::hidden, compute, rows, kAlways, kPartAlternate},
                   {"norm2.statistics", kTokens, Width::one, f32, rows, kAlways},
                   {"norm2.y", kTokens, Width::hidden, compute, rows, kAlways, kPartNorms},
                   {"mlp.gate", kTokens, Width::ffn, compute, columns, kDense, kPartMlp},
                   {"mlp.linear", kTokens, Width::ffn, compute, columns, kDense | kSwiglu,
                    kPartMlp | kPartAlternate},
                   {"mlp.activated", kTokens, Width::ffn, compute, columns, kDense | kSwiglu,
                    kMlpActivation},
                   {"mlp.act", kTokens, Width::ffn, compute, columns, kDense, kMlpActivation},
                   {"mlp.out", kTokens, Width::hidden, compute, rows, kDense}});
  append(p.block, expert_tensors(rows));
  return p;
}

}  // namespace tutti::spec
