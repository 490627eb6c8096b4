// The samples of a blend of corpora: what each row of a micro-batch holds.
//
// A sample is T rows. In training, sample i of the run belongs to the corpus that the blend assigns
// (blend.h), is that corpus' sample k, and reads its window number window(k):
//
//   packing none       SamplePlan (data/loader/sampler.h): a piece of the corpus' stream of tokens
//   packing documents  of the n packed windows (packing.h), permute_index(k mod n, n, key of epoch
//                      k div n): each window once per epoch, every epoch in another order
//
// In a blend each corpus has a seed of its own; a single corpus has the run's. So the order is a
// pure function of (recipe, i): it knows no ranks, and nothing but i is needed to resume.
//
// Evaluation reads windows in order. Without a limit: every window of every corpus once, whatever
// the weights. With one: the first samples of the blend, as many as the limit says, fewer where a
// corpus runs out of windows.
//
// Targets are the next token. kIgnoredTarget stands where there is none to learn: in padding, and
// where the target lies in the part of its document that the corpus masks
// (data/prepare/loss_mask.h). With packing they never cross documents.
//
// Thread-safe: const.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tutti/base/file.h"
#include "tutti/data/corpus/blend.h"
#include "tutti/data/corpus/corpus.h"
#include "tutti/data/loader/packing.h"
#include "tutti/data/loader/sampler.h"
#include "tutti/data/prepare/loss_mask.h"
#include "tutti/spec/recipe/recipe.h"

namespace tutti::data {

inline constexpr int32_t kIgnoredTarget = -1;

struct DatasetOptions {
  int64_t sequence = 1;  // T
  spec::Packing packing = spec::Packing::none;
  int64_t vocabulary = 0;   // ids must be below it (else corrupt); 0: unchecked
  uint64_t seed = 0;        // of the training order
  CacheOptions cache = {};  // of corpora in an object store, which are read by pieces
};

// Where one sample is written: T elements each; positions and starts when packed, else null.
struct SampleRows {
  int32_t* tokens = nullptr;
  int32_t* targets = nullptr;
  int32_t* positions = nullptr;  // of each row in its piece of a document
  int32_t* starts = nullptr;     // the first row of that piece
};

// What a sample holds.
struct SampleFacts {
  int64_t useful = 0;        // rows that are not padding
  int64_t targets = 0;       // rows with a target to learn
  int64_t squared_rows = 0;  // sum over documents of rows^2: what attention's work follows

  SampleFacts& operator+=(const SampleFacts& other) {
    useful += other.useful;
    targets += other.targets;
    squared_rows += other.squared_rows;
    return *this;
  }
};

class Dataset {
 public:
  // Throws what Corpus and LossMask throw, and usage, naming `key`, when a corpus has no sample.
  Dataset(FileSystem& files, const spec::CorpusBlend& blend, const DatasetOptions& options,
          const std::string& key = "data");

  bool packed() const { return options_.packing == spec::Packing::documents; }
  int64_t sequence() const { return options_.sequence; }
  size_t corpora() const { return members_.size(); }
  const Corpus& corpus(size_t index) const { return *members_[index].corpus; }
  // For people, one line per corpus: its share of the samples where there are several, windows,
  // useful rows when packed, masked tokens. Empty when there is nothing to report.
  std::vector<std::string> describe() const;

  // Training needs a whole window of every corpus. Throws usage, naming the corpus.
  void check_trainable() const;
  SampleFacts training_sample(int64_t sample, const SampleRows& rows) const;
  // Hints that the sample is read soon; for corpora by pieces only.
  void training_sample_needed(int64_t sample) const;
  void evaluation_sample_needed(int64_t sample, int64_t limit) const;
  bool by_pieces() const;         // of at least one corpus
  int64_t fetched_bytes() const;  // of tokens, from an object store

  int64_t epoch(int64_t sample) const;  // of the corpus that the sample belongs to

  // Samples of one evaluation; limit 0: all.
  int64_t evaluation_samples(int64_t limit) const;
  // Sample number `sample` of them; beyond the last all rows are padding.
  SampleFacts evaluation_sample(int64_t sample, int64_t limit, const SampleRows& rows) const;

 private:
  struct Member {
    std::shared_ptr<const Corpus> corpus;
    std::shared_ptr<const LossMask> mask;         // or null
    std::shared_ptr<const PackedWindows> packed;  // with packing
    SamplePlan plan;                              // without
    uint64_t seed = 0;
    int64_t windows = 0;  // of an evaluation
  };

  void stream_needed(const Member& member, int64_t first, int64_t count) const;
  void window_needed(const Member& member, int64_t window) const;
  BlendPosition evaluation_position(int64_t sample, int64_t limit) const;
  Member open(FileSystem& files, const std::string& prefix, uint64_t seed) const;
  SampleFacts read_stream(const Member& member, int64_t first, int64_t count,
                          const SampleRows& rows) const;
  SampleFacts read_packed(const Member& member, int64_t window, const SampleRows& rows) const;
  void read_tokens(const Member& member, int64_t first, int64_t count, int32_t* out) const;
  void mask_stream(const Member& member, int64_t first, int64_t count, int32_t* targets) const;
  void pad(int64_t from, const SampleRows& rows) const;

  DatasetOptions options_;
  std::string key_;
  std::vector<Member> members_;
  Blend blend_;
};

}  // namespace tutti::data
