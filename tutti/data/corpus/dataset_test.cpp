#include "tutti/data/corpus/dataset.h"

#include <algorithm>
#include <map>
#include <set>

#include "tutti/base/rng.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/data/testing/test_support.h"

namespace tutti::data {
namespace {

constexpr int64_t kT = 16;

struct Sample {
  std::vector<int32_t> tokens = std::vector<int32_t>(kT, -7), targets = tokens, positions = tokens,
                       starts = tokens;
  SampleFacts facts;
};

// Tokens of corpus c are 1000 c + 1, 1000 c + 2, ...; no two documents share any.
class DatasetTest : public testing::Test {
 protected:
  std::vector<std::vector<int32_t>> write(const std::string& prefix, int32_t corpus,
                                          const std::vector<int64_t>& lengths) {
    std::vector<std::vector<int32_t>> documents;
    int32_t next = 1000 * corpus;
    for (const int64_t length : lengths) {
      documents.emplace_back();
      for (int64_t i = 0; i < length; ++i) documents.back().push_back(++next);
    }
    write_corpus(files_, prefix, documents, DType::i32);
    return documents;
  }
  static Sample training(const Dataset& dataset, int64_t index) {
    return read(dataset,
                [&](const SampleRows& rows) { return dataset.training_sample(index, rows); });
  }
  static Sample evaluation(const Dataset& dataset, int64_t index, int64_t limit = 0) {
    return read(dataset, [&](const SampleRows& rows) {
      return dataset.evaluation_sample(index, limit, rows);
    });
  }
  template <typename Read>
  static Sample read(const Dataset& dataset, const Read& fill) {
    Sample sample;
    SampleRows rows{sample.tokens.data(), sample.targets.data()};
    if (dataset.packed()) {
      rows.positions = sample.positions.data();
      rows.starts = sample.starts.data();
    }
    sample.facts = fill(rows);
    return sample;
  }
  MemoryFileSystem files_;
};

std::vector<int64_t> odd_lengths() {
  std::vector<int64_t> lengths = {0, 1, 2, 3, 17, 18, 50, 1, 0, 33};
  for (uint64_t i = 0; i < 60; ++i) lengths.push_back(static_cast<int64_t>(random_u64(5, i) % 14));
  return lengths;
}

TEST_F(DatasetTest, PackedRowsAreWholeDocumentsAndNeverCrossThem) {
  const auto documents = write("c", 1, odd_lengths());
  std::map<int32_t, int32_t> successor;  // within a document
  for (const auto& document : documents) {
    for (size_t i = 0; i + 1 < document.size(); ++i) successor[document[i]] = document[i + 1];
  }
  const Dataset dataset(files_, "c", {.sequence = kT, .packing = spec::Packing::documents});
  std::map<int32_t, int32_t> learnt;
  int64_t useful = 0;
  for (int64_t s = 0; s < dataset.evaluation_samples(0); ++s) {
    const Sample sample = evaluation(dataset, s);
    int64_t squares = 0;
    for (int64_t t = 0; t < kT; ++t) {
      const auto at = static_cast<size_t>(t);
      EXPECT_EQ(sample.positions[at], t - sample.starts[at]);
      if (t > 0 && sample.starts[at] != t) {  // continues the row before it
        EXPECT_EQ(sample.starts[at], sample.starts[at - 1]);
        EXPECT_EQ(sample.tokens[at], sample.targets[at - 1]);
      }
      if (t < sample.facts.useful) {
        EXPECT_TRUE(learnt.emplace(sample.tokens[at], sample.targets[at]).second);
        squares += 2 * (t - sample.starts[at]) + 1;
      } else {
        EXPECT_EQ(sample.tokens[at], 0);
        EXPECT_EQ(sample.targets[at], kIgnoredTarget);
        EXPECT_EQ(sample.starts[at], t);
      }
    }
    EXPECT_EQ(sample.facts.squared_rows, squares);
    EXPECT_EQ(sample.facts.targets, sample.facts.useful);
    useful += sample.facts.useful;
  }
  EXPECT_EQ(learnt, successor);
  EXPECT_EQ(useful, static_cast<int64_t>(successor.size()));
}

TEST_F(DatasetTest, EveryEpochReadsEveryPackedWindowInAnotherOrder) {
  write("c", 1, odd_lengths());
  const Dataset dataset(files_, "c",
                        {.sequence = kT, .packing = spec::Packing::documents, .seed = 9});
  const int64_t windows = dataset.evaluation_samples(0);
  std::vector<std::vector<std::vector<int32_t>>> epochs;
  for (int64_t e = 0; e < 2; ++e) {
    epochs.emplace_back();
    for (int64_t i = 0; i < windows; ++i) {
      EXPECT_EQ(dataset.epoch(e * windows + i), e);
      epochs.back().push_back(training(dataset, e * windows + i).tokens);
    }
  }
  EXPECT_NE(epochs[0], epochs[1]);
  std::sort(epochs[0].begin(), epochs[0].end());
  std::sort(epochs[1].begin(), epochs[1].end());
  EXPECT_EQ(epochs[0], epochs[1]);
}

TEST_F(DatasetTest, BlendsKeepTheirSharesAndEpochs) {
  write("a", 1, {400});
  write("b", 2, {200});
  write("c", 3, {90});
  const spec::CorpusBlend blend({{"a", 5}, {"b", 3}, {"c", 2}});
  for (const auto packing : {spec::Packing::none, spec::Packing::documents}) {
    const Dataset dataset(files_, blend, {.sequence = kT, .packing = packing, .seed = 3});
    const Dataset alone(files_, "a", {.sequence = kT, .packing = packing, .seed = 3});
    std::map<int32_t, std::vector<std::vector<int32_t>>> samples;
    for (int64_t i = 0; i < 100; ++i) {
      const Sample sample = training(dataset, i);
      samples[sample.tokens[0] / 1000].push_back(sample.tokens);
    }
    EXPECT_EQ(samples[1].size(), 50U);
    EXPECT_EQ(samples[2].size(), 30U);
    EXPECT_EQ(samples[3].size(), 20U);
    // Each corpus goes through epochs of its own.
    const auto windows =
        packing == spec::Packing::none ? size_t{(90 - 1) / kT} : size_t{(90 - 1 + kT - 1) / kT};
    const auto& small = samples[3];
    const std::set<std::vector<int32_t>> epoch(small.begin(),
                                               small.begin() + static_cast<int64_t>(windows));
    EXPECT_EQ(epoch.size(), windows);
    EXPECT_EQ(training(dataset, 42).tokens, training(dataset, 42).tokens);
    // In a blend a corpus has another order than alone.
    std::vector<std::vector<int32_t>> first;
    for (int64_t i = 0; i < 10; ++i) first.push_back(training(alone, i).tokens);
    EXPECT_NE(first, std::vector(samples[1].begin(), samples[1].begin() + 10));
  }
}

TEST_F(DatasetTest, EvaluationOfABlend) {
  write("a", 1, {100});
  write("b", 2, {40});
  const spec::CorpusBlend blend({{"a", 1}, {"b", 1}});
  const Dataset dataset(files_, blend, {.sequence = kT});
  std::set<int32_t> targets;
  ASSERT_EQ(dataset.evaluation_samples(0), 7 + 3);  // ceil(99 / 16) + ceil(39 / 16)
  for (int64_t s = 0; s < 10; ++s) {
    for (const int32_t target : evaluation(dataset, s).targets) {
      if (target < 0) continue;
      EXPECT_TRUE(targets.insert(target).second);
    }
  }
  EXPECT_EQ(targets.size(), 99U + 39U);
  // Limited: by weights, until one of them has no window left.
  EXPECT_EQ(dataset.evaluation_samples(4), 4);
  EXPECT_EQ(dataset.evaluation_samples(100), 7);
  int from_a = 0;
  for (int64_t s = 0; s < 4; ++s) from_a += evaluation(dataset, s, 4).tokens[0] < 2000 ? 1 : 0;
  EXPECT_EQ(from_a, 2);
  const Sample beyond = evaluation(dataset, 4, 4);
  EXPECT_EQ(beyond.facts.targets, 0);
  EXPECT_EQ(beyond.targets, std::vector<int32_t>(kT, kIgnoredTarget));
}

TEST_F(DatasetTest, MasksHideThePromptOnly) {
  const auto documents = write("c", 1, {10, 0, 30, 1, 12});
  const std::vector<uint32_t> masked = {4, 0, 20, 1, 12};
  write_text(files_, "c.mask", loss_mask_bytes(masked, 53));
  std::set<int32_t> hidden, shown;
  for (size_t d = 0; d < documents.size(); ++d) {
    for (size_t i = 0; i < documents[d].size(); ++i) {
      (i < masked[d] ? hidden : shown).insert(documents[d][i]);
    }
  }
  for (const auto packing : {spec::Packing::none, spec::Packing::documents}) {
    const Dataset dataset(files_, "c", {.sequence = kT, .packing = packing});
    std::set<int32_t> learnt;
    for (int64_t s = 0; s < dataset.evaluation_samples(0); ++s) {
      const Sample sample = evaluation(dataset, s);
      int64_t targets = 0;
      for (const int32_t target : sample.targets) {
        if (target == kIgnoredTarget) continue;
        EXPECT_TRUE(learnt.insert(target).second);
        EXPECT_EQ(hidden.count(target), 0U) << target;
        ++targets;
      }
      EXPECT_EQ(sample.facts.targets, targets);
    }
    EXPECT_EQ(learnt, shown);
  }
}

TEST_F(DatasetTest, MasksHideRangesBehindTheFirstAnswerToo) {
  const auto documents = write("c", 1, {10, 0, 30, 1, 12});
  const std::vector<uint32_t> masked = {4, 0, 0, 1, 2};
  const std::vector<MaskedRange> further = {{0, 6, 8}, {2, 1, 5}, {2, 7, 29}, {4, 3, 12}};
  write_text(files_, "c.mask", loss_mask_bytes(masked, 53, further));
  std::set<int32_t> shown;
  for (size_t d = 0; d < documents.size(); ++d) {
    for (size_t i = 0; i < documents[d].size(); ++i) {
      bool hidden = i < masked[d];
      for (const MaskedRange& range : further) {
        hidden = hidden || (range.document == d && i >= range.begin && i < range.end);
      }
      if (!hidden) shown.insert(documents[d][i]);
    }
  }
  for (const auto packing : {spec::Packing::none, spec::Packing::documents}) {
    const Dataset dataset(files_, "c", {.sequence = kT, .packing = packing});
    std::set<int32_t> learnt;
    for (int64_t s = 0; s < dataset.evaluation_samples(0); ++s) {
      for (const int32_t target : evaluation(dataset, s).targets) {
        if (target == kIgnoredTarget) continue;
        EXPECT_TRUE(learnt.insert(target).second);
      }
    }
    std::set<int32_t> expected = shown;
    // The first token of a document follows nothing when documents are packed.
    for (const auto& document : documents) {
      const bool first = packing == spec::Packing::documents || &document == &documents.front();
      if (first && !document.empty()) expected.erase(document.front());
    }
    EXPECT_EQ(learnt, expected);
  }
}

TEST_F(DatasetTest, NothingToPredictIsRefused) {
  write("c", 1, {1, 0, 1});
  const std::string message = error_of(ErrorKind::usage, [&] {
    Dataset(files_, "c", {.sequence = kT, .packing = spec::Packing::documents}, "data.train");
  });
  EXPECT_TRUE(contains(message, "data.train: none of the 3 documents of 'c'")) << message;
  error_of(ErrorKind::usage, [&] { Dataset(files_, "", {.sequence = kT}, "data.train"); });
}

}  // namespace
}  // namespace tutti::data
