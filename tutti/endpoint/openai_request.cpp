#include "tutti/endpoint/openai_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/endpoint/openai_error.h"
#include "tutti/endpoint/request_fields.h"

namespace tutti::endpoint {
namespace {

constexpr int64_t kAnyInteger = std::numeric_limits<int64_t>::max();
constexpr int32_t kMostToken = std::numeric_limits<int32_t>::max();
constexpr size_t kMostDepth = 64;
constexpr size_t kMostBiases = 1024;
constexpr const char* kNoTools =
    "tools are not supported: the answer would be text that looks like any other";

// How deep objects and lists of a text are nested.
size_t depth_of(std::string_view text) {
  size_t depth = 0;
  size_t most = 0;
  bool is_quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (is_quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      is_quoted = !is_quoted;
    } else if (!is_quoted && (c == '{' || c == '[')) {
      most = std::max(most, ++depth);
    } else if (!is_quoted && (c == '}' || c == ']') && depth > 0) {
      --depth;
    }
  }
  return most;
}

int32_t token_of(const Json& value, const std::string& name) {
  return static_cast<int32_t>(json_integer(value, name, 0, kMostToken));
}

std::vector<int32_t> tokens_of(const Json& list, const std::string& name) {
  std::vector<int32_t> tokens;
  tokens.reserve(list.size());
  for (const Json& value : list) tokens.push_back(token_of(value, name));
  return tokens;
}

std::vector<Prompt> read_prompts(const Json& value) {
  const char* accepted = "a string, a list of strings, a list of tokens or a list of such lists";
  std::vector<Prompt> prompts;
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array()) {
    refuse_param("prompt", "'prompt' must be {}, not {}", accepted, json_type(value));
  }
  if (value.empty()) refuse_param("prompt", "'prompt' is an empty list; give {}", accepted);
  if (value.front().is_number()) return {tokens_of(value, "prompt")};
  for (const Json& one : value) {
    if (one.type() != value.front().type() || !(one.is_string() || one.is_array())) {
      refuse_param("prompt", "'prompt' must be {}, and not hold {}", accepted, json_type(one));
    }
    if (one.is_string()) {
      prompts.emplace_back(one.get<std::string>());
    } else {
      prompts.emplace_back(tokens_of(one, "prompt"));
    }
  }
  return prompts;
}

void check_message(const Json& message, size_t index) {
  const std::string where = fmt::format("messages[{}]", index);
  if (!message.is_object()) {
    refuse_param(where, "'{}' must be an object, not {}", where, json_type(message));
  }
  const auto role = message.find("role");
  if (role == message.end() || !role->is_string() || role->get<std::string>().empty()) {
    refuse_param(where + ".role", "'{}.role' must be a string such as \"user\"", where);
  }
  const auto content = message.find("content");
  if (content == message.end() || content->is_null()) {
    if (message.contains("tool_calls")) return;
    refuse_param(where + ".content", "'{}.content' is missing", where);
  }
  if (content->is_string()) return;
  if (!content->is_array()) {
    refuse_param(where + ".content", "'{}.content' must be a string or a list of parts, not {}",
                 where, json_type(*content));
  }
  for (const Json& part : *content) {
    const bool is_text = part.is_object() && part.value("type", Json()) == Json("text") &&
                         part.contains("text") && part["text"].is_string();
    if (!is_text) {
      refuse_param(where + ".content",
                   "'{}.content': only parts {{\"type\": \"text\", \"text\": ...}} are supported; "
                   "models here read no images, sounds or files",
                   where);
    }
  }
}

void read_messages(RequestFields& fields, chat::Conversation& conversation) {
  const Json* messages = fields.find("messages");
  if (messages == nullptr) refuse_param("messages", "'messages' is missing");
  if (!messages->is_array()) {
    refuse_param("messages", "'messages' must be a list, not {}", json_type(*messages));
  }
  if (messages->empty()) refuse_param("messages", "'messages' is an empty list");
  for (size_t i = 0; i < messages->size(); ++i) check_message((*messages)[i], i);
  conversation.messages = *messages;
  conversation.add_generation_prompt = true;
  fields.read("add_generation_prompt", conversation.add_generation_prompt);
  if (const Json* variables = fields.find("chat_template_kwargs")) {
    if (!variables->is_object()) {
      refuse_param("chat_template_kwargs", "'chat_template_kwargs' must be an object, not {}",
                   json_type(*variables));
    }
    conversation.variables = *variables;
  }
  if (const Json* effort = fields.find("reasoning_effort")) {
    conversation.variables["reasoning_effort"] = *effort;
  }
}

void read_stops(RequestFields& fields, ApiRequest& request) {
  if (const Json* stop = fields.find("stop")) {
    const Json list = stop->is_array() ? *stop : Json::array({*stop});
    if (list.size() > kMostStops) {
      refuse_param("stop", "'stop' has {} texts; at most {} are accepted", list.size(), kMostStops);
    }
    for (const Json& one : list) {
      if (!one.is_string() || one.get<std::string>().empty()) {
        refuse_param("stop", "'stop' must be a string that is not empty, or a list of such");
      }
      request.stops.push_back(one.get<std::string>());
    }
  }
  if (const Json* ids = fields.find("stop_token_ids")) {
    if (!ids->is_array()) {
      refuse_param("stop_token_ids", "'stop_token_ids' must be a list, not {}", json_type(*ids));
    }
    request.stop_token_ids = tokens_of(*ids, "stop_token_ids");
  }
  fields.read("ignore_eos", request.ignore_eos);
}

void read_bias(RequestFields& fields, SamplingParams& sampling) {
  const Json* bias = fields.find("logit_bias");
  if (bias == nullptr) return;
  if (!bias->is_object()) {
    refuse_param("logit_bias", "'logit_bias' must be an object of token ids and numbers, not {}",
                 json_type(*bias));
  }
  if (bias->size() > kMostBiases) {
    refuse_param("logit_bias", "'logit_bias' has {} tokens; at most {} are accepted", bias->size(),
                 kMostBiases);
  }
  for (const auto& [key, value] : bias->items()) {
    const bool is_id =
        !key.empty() && key.size() <= 9 && key.find_first_not_of("0123456789") == std::string::npos;
    if (!is_id || !value.is_number() || std::abs(value.get<double>()) > 100) {
      refuse_param("logit_bias",
                   "'logit_bias' must have token ids, each with a number of -100 to "
                   "100");
    }
    sampling.logit_bias.emplace_back(std::stoi(key), value.get<float>());
  }
}

void read_sampling(RequestFields& fields, ApiRequest& request) {
  SamplingParams& sampling = request.sampling;
  fields.read("temperature", sampling.temperature, 0, 2);
  fields.read("top_p", sampling.top_p, 0, 1);
  if (sampling.top_p == 0) refuse_param("top_p", "'top_p' must be more than 0");
  fields.read("top_k", sampling.top_k, -1, kAnyInteger);
  sampling.top_k = std::max<int64_t>(sampling.top_k, 0);  // -1 is vLLM's "all"
  fields.read("min_p", sampling.min_p, 0, 1);
  fields.read("presence_penalty", sampling.presence_penalty, -2, 2);
  fields.read("frequency_penalty", sampling.frequency_penalty, -2, 2);
  fields.read("repetition_penalty", sampling.repetition_penalty, 0.01, 100);
  request.seed = fields.integer("seed", -kAnyInteger - 1, kAnyInteger);
  read_bias(fields, sampling);
  fields.read("n", request.n, 1, kMostChoices);
}

void read_logprobs(RequestFields& fields, ApiRequest& request) {
  if (request.route == Route::completions) {
    const auto count = fields.integer("logprobs", 0, kMostTopLogprobs);
    if (count) request.sampling.top_logprobs = static_cast<int>(*count);
    return;
  }
  bool wanted = false;
  fields.read("logprobs", wanted);
  const auto count = fields.integer("top_logprobs", 0, kMostTopLogprobs);
  if (count.value_or(0) > 0 && !wanted) {
    refuse_param("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  }
  if (wanted) request.sampling.top_logprobs = static_cast<int>(count.value_or(0));
}

void read_stream(RequestFields& fields, ApiRequest& request) {
  fields.read("stream", request.stream);
  const Json* options = fields.find("stream_options");
  if (options == nullptr) return;
  if (!request.stream) refuse_param("stream_options", "'stream_options' needs 'stream': true");
  if (!options->is_object()) {
    refuse_param("stream_options", "'stream_options' must be an object, not {}",
                 json_type(*options));
  }
  RequestFields inner(*options);
  inner.read("include_usage", request.include_usage);
  inner.ignore({"include_obfuscation"});
  inner.refuse_others();
}

bool is_empty(const Json& value) { return value.empty() || value == Json(""); }
bool is_false(const Json& value) { return value == Json(false); }

void read_completion_only(RequestFields& fields, ApiRequest& request) {
  const Json* prompt = fields.find("prompt");
  if (prompt == nullptr) refuse_param("prompt", "'prompt' is missing");
  request.prompts = read_prompts(*prompt);
  fields.read("echo", request.echo);
  fields.read("add_special_tokens", request.add_special_tokens);
  if (request.echo && request.sampling.top_logprobs >= 0) {
    refuse_param("echo", "'echo' with 'logprobs': log probabilities of prompts are not supported");
  }
  fields.refuse_unless("suffix", is_empty, "text after the answer is not supported");
  const auto best_of = fields.integer("best_of", 1, kMostChoices);
  if (best_of && *best_of != request.n) {
    refuse_param("best_of", "'best_of' other than 'n' is not supported");
  }
}

void read_chat_only(RequestFields& fields, ApiRequest& request) {
  read_messages(fields, request.conversation);
  fields.refuse_unless("tools", is_empty, kNoTools);
  fields.refuse_unless("functions", is_empty, kNoTools);
  fields.refuse_unless(
      "tool_choice", [](const Json& value) { return value == "none" || value == "auto"; },
      kNoTools);
  fields.refuse_unless(
      "function_call", [](const Json& value) { return value == "none" || value == "auto"; },
      kNoTools);
  fields.refuse_unless(
      "modalities", [](const Json& value) { return value == Json::array({"text"}); },
      "answers are text only");
  fields.refuse_unless("continue_final_message", is_false, "it is not supported");
  fields.ignore({"parallel_tool_calls"});
}

}  // namespace

Json parse_body(std::string_view body) {
  if (!is_utf8(body)) throw ApiError(400, "the body is not UTF-8");
  if (depth_of(body) > kMostDepth) {
    throw ApiError(400, fmt::format("the body is nested more than {} deep", kMostDepth));
  }
  Json json;
  try {
    json = parse_json(body, "the body");
  } catch (const Error& error) {
    throw ApiError(400, error.what());
  }
  if (!json.is_object()) {
    throw ApiError(400, "the body must be a JSON object, not " + json_type(json));
  }
  return json;
}

ApiRequest parse_api_request(const Json& body, Route route) {
  RequestFields fields(body);
  ApiRequest request;
  request.route = route;
  fields.read("model", request.model);
  request.max_tokens = fields.integer("max_tokens", 1, kAnyInteger);
  if (route == Route::chat) {
    const auto newer = fields.integer("max_completion_tokens", 1, kAnyInteger);
    if (newer) request.max_tokens = newer;
  }
  read_sampling(fields, request);
  read_stops(fields, request);
  read_logprobs(fields, request);
  read_stream(fields, request);
  if (route == Route::chat) {
    read_chat_only(fields, request);
  } else {
    read_completion_only(fields, request);
  }
  fields.refuse_unless(
      "response_format",
      [](const Json& value) {
        return value.is_object() && value.size() == 1 && value.value("type", Json()) == "text";
      },
      "answers in a given form are not supported");
  fields.ignore({"user", "metadata", "store", "service_tier", "safety_identifier",
                 "prompt_cache_key", "prompt_cache_retention"});
  fields.refuse_others();
  const auto choices = static_cast<int64_t>(std::max<size_t>(request.prompts.size(), 1));
  if (choices * request.n > kMostChoices) {
    refuse_param("n", "{} prompts with n = {} are more than {} answers; send several requests",
                 choices, request.n, kMostChoices);
  }
  return request;
}

TokenizeRequest parse_tokenize(const Json& body) {
  RequestFields fields(body);
  TokenizeRequest request;
  fields.read("model", request.model);
  fields.read("add_special_tokens", request.add_special_tokens);
  fields.read("return_token_strs", request.return_token_strs);
  if (fields.find("messages") != nullptr) {
    read_messages(fields, request.conversation);
  } else if (fields.find("prompt") != nullptr) {
    std::string text;
    fields.read("prompt", text);
    request.prompt = std::move(text);
  } else {
    refuse_param("prompt", "'prompt' or 'messages' is missing");
  }
  fields.refuse_others();
  return request;
}

DetokenizeRequest parse_detokenize(const Json& body) {
  RequestFields fields(body);
  DetokenizeRequest request;
  fields.read("model", request.model);
  const Json* tokens = fields.find("tokens");
  if (tokens == nullptr || !tokens->is_array()) {
    refuse_param("tokens", "'tokens' must be a list of token ids");
  }
  request.tokens = tokens_of(*tokens, "tokens");
  fields.refuse_others();
  return request;
}

}  // namespace tutti::endpoint
