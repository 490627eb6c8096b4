#include "tutti/data/tokenizers/text_decoder.h"

#include <algorithm>
#include <utility>

#include "tutti/data/tokenizers/text_normalizer.h"
#include "tutti/data/tokenizers/utf8.h"

namespace tutti::data {
namespace {

using DecodeKind = DecodeStep::Kind;

bool is_whole(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid) return false;
    at += c.bytes;
  }
  return true;
}

std::string strip_ends(std::string_view text, const DecodeStep& step) {
  for (int64_t i = 0; i < step.start && text.starts_with(step.from); ++i) {
    text.remove_prefix(step.from.size());
  }
  for (int64_t i = 0; i < step.stop && text.ends_with(step.from); ++i) {
    text.remove_suffix(step.from.size());
  }
  return std::string(text);
}

std::string cleaned_up(std::string text) {
  constexpr std::pair<std::string_view, std::string_view> kRules[] = {
      {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
      {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
      {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
  for (const auto& [from, to] : kRules) {
    if (text.find(from) != std::string::npos) text = replace_all(text, from, to);
  }
  return text;
}

std::string decode_step(const DecodeStep& step, std::string text, bool first) {
  switch (step.kind) {
    case DecodeKind::replace:
      return step.pattern != nullptr ? replace_all(text, *step.pattern, step.to)
                                     : replace_all(text, step.from, step.to);
    case DecodeKind::strip: return strip_ends(text, step);
    case DecodeKind::marks: return replace_all(text, step.from, first && step.first ? "" : " ");
    case DecodeKind::word_piece:
      if (first) return text;
      return text.starts_with(step.from) ? text.substr(step.from.size()) : " " + text;
    case DecodeKind::clean_up: return cleaned_up(std::move(text));
    default: return text;
  }
}

bool joins(const DecodeStep& step) {
  return step.kind == DecodeKind::fuse || step.kind == DecodeKind::space_between;
}

}  // namespace

int fallback_byte(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
                                  : -256;
  };
  return std::max(-1, digit(token[3]) * 16 + digit(token[4]));
}

TextDecoder::TextDecoder(std::vector<DecodeStep> steps, std::vector<std::string> tokens)
    : steps_(std::move(steps)), tokens_(std::move(tokens)) {
  const auto joined = std::find_if(steps_.begin(), steps_.end(), joins);
  joined_ = static_cast<size_t>(joined - steps_.begin());
  spaces_ = joined != steps_.end() && joined->kind == DecodeKind::space_between;
  for (size_t i = 0; i < joined_; ++i) {
    if (steps_[i].kind == DecodeKind::byte_fallback) fallback_ = i + 1;
  }
  for (const std::string& token : tokens_) {
    bytes_.push_back(static_cast<int16_t>(fallback_ > 0 ? fallback_byte(token) : -1));
    pieces_.push_back(one(token, 0, false));
  }
}

std::string TextDecoder::one(std::string token, size_t from_step, bool first) const {
  for (size_t i = from_step; i < joined_; ++i) {
    token = decode_step(steps_[i], std::move(token), first);
  }
  return token;
}

std::string TextDecoder::decode(std::span<const int32_t> ids, bool rest) const {
  std::string text;
  for (size_t i = 0; i < ids.size();) {
    const bool first = i == 0 && !rest;
    if (spaces_ && !first) text += ' ';
    const auto id = static_cast<size_t>(ids[i]);
    if (bytes_[id] < 0) {
      text += first ? one(tokens_[id], 0, true) : pieces_[id];
      ++i;
      continue;
    }
    std::string run;
    for (; i < ids.size() && bytes_[static_cast<size_t>(ids[i])] >= 0; ++i) {
      run += static_cast<char>(bytes_[static_cast<size_t>(ids[i])]);
    }
    text += is_whole(run) ? one(run, fallback_, first) : run;
  }
  for (size_t i = joined_; i < steps_.size(); ++i) {
    if (rest && steps_[i].kind == DecodeKind::strip) continue;
    text = decode_step(steps_[i], std::move(text), !rest);
  }
  return text;
}

}  // namespace tutti::data
