#include "tutti/data/corpus/dataset.h"

#include <algorithm>

#include "tutti/base/check.h"
#include "tutti/base/error.h"
#include "tutti/base/rng.h"
#include "tutti/base/units.h"
#include "tutti/data/corpus/format.h"

namespace tutti::data {
namespace {

std::vector<double> weights_of(const spec::CorpusBlend& blend, const std::string& key) {
  if (blend.empty()) {
    fail(ErrorKind::usage,
         "{}: no corpus given; prepare one with 'tutti data prepare' and pass {}=PREFIX", key, key);
  }
  std::vector<double> weights;
  for (const spec::CorpusShare& share : blend.corpora) weights.push_back(share.weight);
  return weights;
}

int64_t count_targets(const int32_t* targets, int64_t count) {
  return count - std::count(targets, targets + count, kIgnoredTarget);
}

// The document that token `token` of the stream belongs to.
int64_t document_of(const Corpus& corpus, int64_t token) {
  int64_t low = 0, high = corpus.documents();  // it is in [low, high)
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (corpus.document_range(middle).first <= token ? low : high) = middle;
  }
  return low;
}

}  // namespace

Dataset::Dataset(FileSystem& files, const spec::CorpusBlend& blend, const DatasetOptions& options,
                 const std::string& key)
    : options_(options), key_(key), blend_(weights_of(blend, key)) {
  TUTTI_CHECK(options.sequence > 0, "samples of {} tokens", options.sequence);
  const bool single = blend.corpora.size() == 1;
  for (size_t i = 0; i < blend.corpora.size(); ++i) {
    const uint64_t seed = single ? options.seed : random_u64(stream_key(options.seed, "blend"), i);
    members_.push_back(open(files, blend.corpora[i].prefix, seed));
  }
}

Dataset::Member Dataset::open(FileSystem& files, const std::string& prefix, uint64_t seed) const {
  const int64_t T = options_.sequence;
  Member member;
  member.seed = seed;
  CorpusOptions how;
  how.by_pieces = true;
  how.cache = options_.cache;
  member.corpus = std::make_shared<const Corpus>(files, prefix, how);
  member.mask = open_loss_mask(files, *member.corpus);
  const Corpus& corpus = *member.corpus;
  if (packed()) {
    member.packed = std::make_shared<const PackedWindows>(
        corpus.documents(), [&](int64_t d) { return corpus.document_range(d).count; }, T);
    member.windows = member.packed->windows();
    if (member.windows == 0) {
      fail(ErrorKind::usage,
           "{}: none of the {} documents of '{}' has two or more tokens; use another corpus", key_,
           corpus.documents(), prefix);
    }
    return member;
  }
  member.plan = {corpus.tokens(), T, seed};
  member.windows = (corpus.tokens() - 1 + T - 1) / T;
  if (member.windows == 0) {
    fail(ErrorKind::usage, "{}: '{}' has {} token; at least 2 are needed", key_, prefix,
         corpus.tokens());
  }
  return member;
}

std::vector<std::string> Dataset::describe() const {
  std::vector<std::string> lines;
  const auto count = [](int64_t value) { return format_count(static_cast<double>(value)); };
  for (size_t i = 0; i < members_.size(); ++i) {
    const Member& member = members_[i];
    const Corpus& corpus = *member.corpus;
    std::string line;
    if (members_.size() > 1) {
      line += fmt::format(", {:.4g}% of samples",
                          100 * static_cast<double>(blend_.share(static_cast<int64_t>(i))) /
                              static_cast<double>(blend_.cycle()));
    }
    if (packed()) {
      line += fmt::format(", {} documents packed into {} windows of {}, {:.2f}% useful",
                          count(corpus.documents()), count(member.windows), options_.sequence,
                          100 * member.packed->useful_share());
    }
    if (member.mask) {
      line += fmt::format(", {:.2f}% of tokens masked",
                          100 * static_cast<double>(member.mask->masked_tokens()) /
                              static_cast<double>(corpus.tokens()));
    }
    if (!line.empty()) lines.push_back(key_ + " " + corpus.prefix() + ":" + line.substr(1));
  }
  return lines;
}

void Dataset::check_trainable() const {
  if (packed()) return;
  for (const Member& member : members_) {
    if (member.plan.tokens > options_.sequence) continue;
    fail(ErrorKind::usage,
         "{}: '{}' has {} tokens; one sequence of {} and the token after it take {}: use a larger "
         "corpus or a smaller batch.sequence",
         key_, member.corpus->prefix(), member.plan.tokens, options_.sequence,
         options_.sequence + 1);
  }
}

SampleFacts Dataset::training_sample(int64_t sample, const SampleRows& rows) const {
  const BlendPosition position = blend_.position(sample);
  const Member& member = members_[static_cast<size_t>(position.corpus)];
  if (packed()) {
    return read_packed(member, shuffled_window(member.seed, position.index, member.windows), rows);
  }
  return read_stream(member, member.plan.window_of(position.index).first, options_.sequence, rows);
}

int64_t Dataset::epoch(int64_t sample) const {
  const BlendPosition position = blend_.position(sample);
  const Member& member = members_[static_cast<size_t>(position.corpus)];
  return position.index / (packed() ? member.windows : member.plan.windows_per_epoch());
}

int64_t Dataset::evaluation_samples(int64_t limit) const {
  if (limit == 0) {
    int64_t all = 0;
    for (const Member& member : members_) all += member.windows;
    return all;
  }
  const auto fits = [&](int64_t samples) {
    for (int64_t c = 0; c < blend_.corpora(); ++c) {
      if (blend_.count(c, samples) > members_[static_cast<size_t>(c)].windows) return false;
    }
    return true;
  };
  int64_t low = 0, high = limit + 1;  // `low` samples fit, `high` do not
  while (high - low > 1) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

SampleFacts Dataset::evaluation_sample(int64_t sample, int64_t limit,
                                       const SampleRows& rows) const {
  if (sample >= evaluation_samples(limit)) {
    pad(0, rows);
    return {};
  }
  const BlendPosition position = evaluation_position(sample, limit);
  const Member& member = members_[static_cast<size_t>(position.corpus)];
  if (packed()) return read_packed(member, position.index, rows);
  const int64_t first = position.index * options_.sequence;
  return read_stream(member, first,
                     std::min(options_.sequence, member.corpus->tokens() - 1 - first), rows);
}

BlendPosition Dataset::evaluation_position(int64_t sample, int64_t limit) const {
  if (limit > 0) return blend_.position(sample);
  BlendPosition position{0, sample};
  while (position.index >= members_[static_cast<size_t>(position.corpus)].windows) {
    position.index -= members_[static_cast<size_t>(position.corpus++)].windows;
  }
  return position;
}

bool Dataset::by_pieces() const {
  return std::any_of(members_.begin(), members_.end(),
                     [](const Member& member) { return member.corpus->by_pieces(); });
}

int64_t Dataset::fetched_bytes() const {
  int64_t bytes = 0;
  for (const Member& member : members_) bytes += member.corpus->fetched_bytes();
  return bytes;
}

void Dataset::training_sample_needed(int64_t sample) const {
  const BlendPosition position = blend_.position(sample);
  const Member& member = members_[static_cast<size_t>(position.corpus)];
  if (!member.corpus->by_pieces()) return;
  if (packed()) {
    return window_needed(member, shuffled_window(member.seed, position.index, member.windows));
  }
  stream_needed(member, member.plan.window_of(position.index).first, options_.sequence);
}

void Dataset::evaluation_sample_needed(int64_t sample, int64_t limit) const {
  if (sample >= evaluation_samples(limit)) return;
  const BlendPosition position = evaluation_position(sample, limit);
  const Member& member = members_[static_cast<size_t>(position.corpus)];
  if (!member.corpus->by_pieces()) return;
  if (packed()) return window_needed(member, position.index);
  stream_needed(member, position.index * options_.sequence, options_.sequence);
}

void Dataset::stream_needed(const Member& member, int64_t first, int64_t count) const {
  member.corpus->will_need(first, std::min(count + 1, member.corpus->tokens() - first));
}

void Dataset::window_needed(const Member& member, int64_t window) const {
  for (int64_t i = 0; i < member.packed->pieces(window); ++i) {
    const Piece piece = member.packed->piece(window, i);
    const Corpus::TokenRange document = member.corpus->document_range(piece.document);
    const int64_t skipped = piece.part * options_.sequence;
    stream_needed(member, document.first + skipped,
                  std::min(options_.sequence, document.count - 1 - skipped));
  }
}

// Tokens [first, first + count) of the stream and the ones after them.
SampleFacts Dataset::read_stream(const Member& member, int64_t first, int64_t count,
                                 const SampleRows& rows) const {
  const int64_t T = options_.sequence;
  read_tokens(member, first, count, rows.tokens);
  std::copy_n(rows.tokens + 1, count - 1, rows.targets);
  read_tokens(member, first + count, 1, rows.targets + count - 1);
  if (member.mask) mask_stream(member, first + 1, count, rows.targets);
  pad(count, rows);
  return {count, count_targets(rows.targets, count), T * T};
}

void Dataset::mask_stream(const Member& member, int64_t first, int64_t count,
                          int32_t* targets) const {
  const Corpus& corpus = *member.corpus;
  for (int64_t d = document_of(corpus, first); d < corpus.documents(); ++d) {
    const int64_t begin = corpus.document_range(d).first;
    if (begin >= first + count) return;
    const int64_t end = std::min(first + count, begin + member.mask->masked(d));
    for (int64_t token = std::max(begin, first); token < end; ++token) {
      targets[token - first] = kIgnoredTarget;
    }
    for (const MaskedRange& range : member.mask->further(d)) {
      const int64_t last = std::min(first + count, begin + range.end);
      for (int64_t token = std::max(begin + range.begin, first); token < last; ++token) {
        targets[token - first] = kIgnoredTarget;
      }
    }
  }
}

SampleFacts Dataset::read_packed(const Member& member, int64_t window,
                                 const SampleRows& rows) const {
  const int64_t T = options_.sequence;
  SampleFacts facts;
  int64_t at = 0;
  for (int64_t i = 0; i < member.packed->pieces(window); ++i) {
    const Piece piece = member.packed->piece(window, i);
    const Corpus::TokenRange document = member.corpus->document_range(piece.document);
    const int64_t skipped = piece.part * T;
    const int64_t count = std::min(T, document.count - 1 - skipped);
    const int64_t masked = member.mask ? member.mask->masked(piece.document) : 0;
    read_tokens(member, document.first + skipped, count, rows.tokens + at);
    std::copy_n(rows.tokens + at + 1, count - 1, rows.targets + at);
    read_tokens(member, document.first + skipped + count, 1, rows.targets + at + count - 1);
    for (int64_t r = 0; r < count; ++r) {
      if (skipped + r + 1 < masked) rows.targets[at + r] = kIgnoredTarget;
      rows.positions[at + r] = static_cast<int32_t>(r);
      rows.starts[at + r] = static_cast<int32_t>(at);
    }
    if (member.mask) {
      for (const MaskedRange& range : member.mask->further(piece.document)) {
        // The target of row r is token skipped + r + 1.
        const int64_t last = std::min<int64_t>(count, range.end - skipped - 1);
        for (int64_t r = std::max<int64_t>(0, range.begin - skipped - 1); r < last; ++r) {
          rows.targets[at + r] = kIgnoredTarget;
        }
      }
    }
    facts.squared_rows += count * count;
    at += count;
  }
  pad(at, rows);
  facts.useful = at;
  facts.targets = count_targets(rows.targets, at);
  return facts;
}

// Rows of padding are documents of their own, so that they cost next to nothing.
void Dataset::pad(int64_t from, const SampleRows& rows) const {
  const int64_t T = options_.sequence;
  std::fill(rows.tokens + from, rows.tokens + T, 0);
  std::fill(rows.targets + from, rows.targets + T, kIgnoredTarget);
  if (rows.starts == nullptr) return;
  std::fill(rows.positions + from, rows.positions + T, 0);
  for (int64_t r = from; r < T; ++r) rows.starts[r] = static_cast<int32_t>(r);
}

void Dataset::read_tokens(const Member& member, int64_t first, int64_t count, int32_t* out) const {
  member.corpus->read(first, count, out);
  if (options_.vocabulary == 0) return;
  const auto limit = static_cast<uint32_t>(options_.vocabulary);
  uint32_t largest = 0;  // negative ids become large
  for (int64_t i = 0; i < count; ++i) largest = std::max(largest, static_cast<uint32_t>(out[i]));
  if (largest < limit) return;
  int64_t at = 0;
  while (static_cast<uint32_t>(out[at]) < limit) ++at;
  fail(ErrorKind::corrupt, "'{}': token {} has the id {}, outside the vocabulary of {}",
       corpus_paths(member.corpus->prefix()).bin, first + at, out[at], options_.vocabulary);
}

}  // namespace tutti::data
