#include "tutti/checkpoint/huggingface/families.h"

#include <algorithm>

namespace tutti::checkpoint {

namespace {

const std::vector<std::pair<const char*, const char*>> kGemmaNorms = {
    {"norm1", "input_layernorm"},
    {"attention.branch_norm", "post_attention_layernorm"},
    {"norm2", "pre_feedforward_layernorm"},
    {"mlp.branch_norm", "post_feedforward_layernorm"}};

HfFamilyNames mixtral_names() {
  HfFamilyNames out = {HfFamily::mixtral, "mixtral", {"MixtralForCausalLM", "MixtralModel"}};
  out.experts = {"block_sparse_moe", "gate", "w1", "w3", "w2"};
  return out;
}

HfFamilyNames gpt_oss_names() {
  HfFamilyNames out = {HfFamily::gpt_oss, "gpt_oss", {"GptOssForCausalLM", "GptOssModel"}};
  out.experts = {"mlp", "router", "gate_up_proj", "gate_up_proj", "down_proj", true};
  return out;
}

HfFamilyNames deepseek_names(HfFamily family, const char* type, const char* causal,
                             const char* bare) {
  HfFamilyNames out = {family, type, {causal, bare}};
  out.interleaved = true;
  out.experts.selection_bias = "e_score_correction_bias";
  return out;
}

}  // namespace

const std::vector<HfFamilyNames>& hf_families() {
  static const std::vector<HfFamilyNames> all = {
      {HfFamily::gpt2, "gpt2", {"GPT2LMHeadModel", "GPT2Model"}},
      {HfFamily::llama, "llama", {"LlamaForCausalLM", "LlamaModel"}},
      {HfFamily::mistral, "mistral", {"MistralForCausalLM", "MistralModel"}},
      mixtral_names(),
      {HfFamily::qwen2, "qwen2", {"Qwen2ForCausalLM", "Qwen2Model"}},
      {HfFamily::qwen3, "qwen3", {"Qwen3ForCausalLM", "Qwen3Model"}},
      {HfFamily::gemma2,
       "gemma2",
       {"Gemma2ForCausalLM", "Gemma2Model"},
       false,
       false,
       false,
       kGemmaNorms},
      {HfFamily::gemma3,
       "gemma3_text",
       {"Gemma3ForCausalLM", "Gemma3TextModel"},
       false,
       false,
       false,
       kGemmaNorms},
      {HfFamily::phi3, "phi3", {"Phi3ForCausalLM", "Phi3Model"}, true, true},
      {HfFamily::olmo2,
       "olmo2",
       {"Olmo2ForCausalLM", "Olmo2Model"},
       false,
       false,
       false,
       {{"attention.branch_norm", "post_attention_layernorm"},
        {"mlp.branch_norm", "post_feedforward_layernorm"}}},
      {HfFamily::smollm3, "smollm3", {"SmolLM3ForCausalLM", "SmolLM3Model"}},
      {HfFamily::granite, "granite", {"GraniteForCausalLM", "GraniteModel"}},
      {HfFamily::glm4,
       "glm4",
       {"Glm4ForCausalLM", "Glm4Model"},
       false,
       true,
       true,
       {{"norm1", "input_layernorm"},
        {"attention.branch_norm", "post_self_attn_layernorm"},
        {"norm2", "post_attention_layernorm"},
        {"mlp.branch_norm", "post_mlp_layernorm"}}},
      {HfFamily::qwen3_moe, "qwen3_moe", {"Qwen3MoeForCausalLM", "Qwen3MoeModel"}},
      {HfFamily::olmoe, "olmoe", {"OlmoeForCausalLM", "OlmoeModel"}},
      gpt_oss_names(),
      deepseek_names(HfFamily::deepseek_v2, "deepseek_v2", "DeepseekV2ForCausalLM",
                     "DeepseekV2Model"),
      deepseek_names(HfFamily::deepseek_v3, "deepseek_v3", "DeepseekV3ForCausalLM",
                     "DeepseekV3Model")};
  return all;
}

const HfFamilyNames& hf_family_names(HfFamily family) {
  return *std::find_if(hf_families().begin(), hf_families().end(),
                       [&](const HfFamilyNames& one) { return one.family == family; });
}

const std::vector<const char*>& hf_neutral_keys() {
  static const std::vector<const char*> keys = {"_attn_implementation",
                                                "_name_or_path",
                                                "attn_implementation",
                                                "bad_words_ids",
                                                "begin_suppress_tokens",
                                                "bos_token_id",
                                                "cache_implementation",
                                                "chunk_size_feed_forward",
                                                "decoder_start_token_id",
                                                "diversity_penalty",
                                                "do_sample",
                                                "early_stopping",
                                                "encoder_no_repeat_ngram_size",
                                                "eos_token_id",
                                                "exponential_decay_length_penalty",
                                                "finetuning_task",
                                                "forced_bos_token_id",
                                                "forced_eos_token_id",
                                                "gradient_checkpointing",
                                                "id2label",
                                                "is_decoder",
                                                "label2id",
                                                "length_penalty",
                                                "max_length",
                                                "max_window_layers",
                                                "min_length",
                                                "no_repeat_ngram_size",
                                                "no_rope_layer_interval",
                                                "num_beam_groups",
                                                "num_beams",
                                                "num_return_sequences",
                                                "output_attentions",
                                                "output_hidden_states",
                                                "output_router_logits",
                                                "output_scores",
                                                "pad_token_id",
                                                "prefix",
                                                "pretraining_tp",
                                                "problem_type",
                                                "remove_invalid_values",
                                                "reorder_and_upcast_attn",
                                                "repetition_penalty",
                                                "return_dict",
                                                "return_dict_in_generate",
                                                "sep_token_id",
                                                "summary_activation",
                                                "summary_first_dropout",
                                                "summary_proj_to_labels",
                                                "summary_type",
                                                "summary_use_proj",
                                                "suppress_tokens",
                                                "task_specific_params",
                                                "temperature",
                                                "tf_legacy_loss",
                                                "tokenizer_class",
                                                "top_k",
                                                "top_p",
                                                "torchscript",
                                                "transformers_version",
                                                "typical_p",
                                                "use_bfloat16",
                                                "use_cache"};
  return keys;
}

}  // namespace tutti::checkpoint
