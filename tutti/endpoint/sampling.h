// Which token a request continues with: from the logits of its last position, what it asks for, and
// its own random numbers.
//
// The order of the steps is that of vLLM: logit bias; repetition, then frequency and presence
// penalties; temperature; min-p; top-k; top-p. Token i of a request is a function of its logits,
// its parameters, its earlier tokens, its seed and i, so nothing else that runs can change it.
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

namespace tutti::endpoint {

inline constexpr int kMostTopLogprobs = 20;  // as OpenAI's API allows

struct SamplingParams {
  int64_t max_tokens = 16;
  double temperature = 1;         // 0: greedy, the most likely token; ties go to the lower id
  double top_p = 1;               // of the most likely tokens as few as have this probability
  int64_t top_k = 0;              // of the most likely tokens as many; 0: all
  double min_p = 0;               // only tokens with this share of the largest probability
  double presence_penalty = 0;    // off the logits of tokens that were generated
  double frequency_penalty = 0;   // the same for each time that they were
  double repetition_penalty = 1;  // divides positive logits of tokens of prompt and answer,
                                  // multiplies negative ones (Keskar et al. 2019)
  std::vector<std::pair<int32_t, float>> logit_bias;
  uint64_t seed = 0;
  int top_logprobs = -1;  // -1: no log probabilities; 0..20: of the token and so many alternatives
  std::vector<int32_t> stop_tokens;  // end of text or of turn: reported, and they end the answer
};

// Throws usage naming the first parameter out of its range, by its name in OpenAI's API.
// `vocabulary`: of the model, which bounds the tokens that are named.
void check(const SamplingParams& params, int64_t vocabulary);

struct TokenLogprob {
  int32_t token = -1;
  float logprob = 0;
};

struct SampledToken {
  int32_t token = -1;
  // Of the model's own distribution, before bias, penalties and temperature; with top_logprobs >=
  // 0.
  float logprob = 0;
  std::vector<TokenLogprob> top;  // most likely first
};

// What sampling remembers of one request.
class Sampler {
 public:
  Sampler(SamplingParams params, std::span<const int32_t> prompt);

  // The next token, from logits [V]. Counts it.
  SampledToken next(std::span<const float> logits);

  const SamplingParams& params() const { return params_; }
  int64_t generated() const { return generated_; }

 private:
  void adjust(std::span<float> logits) const;
  int32_t draw(std::span<const float> logits) const;

  SamplingParams params_;
  uint64_t key_ = 0;
  int64_t generated_ = 0;
  struct Seen {
    int64_t generated = 0;  // times
  };
  std::unordered_map<int32_t, Seen>
      seen_;  // tokens of prompt (with a repetition penalty) and answer
  std::vector<float> adjusted_;
};

}  // namespace tutti::endpoint
