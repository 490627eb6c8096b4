#include "tutti/data/loader/loader.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "tutti/base/clock.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/data/testing/test_support.h"

namespace tutti::data {
namespace {

// Token i of the corpus is i, so a batch says where it was read.
class LoaderTest : public testing::Test {
 protected:
  std::shared_ptr<const Dataset> counting(int32_t tokens, const DatasetOptions& options) {
    write_counting_corpus(files_, "c", tokens);
    return std::make_shared<Dataset>(files_, spec::CorpusBlend("c"), options);
  }
  MemoryFileSystem files_;
};

std::vector<int32_t> tokens_of(const Batch& batch) {
  return {batch.tokens, batch.tokens + batch.rows * batch.sequence};
}

TEST_F(LoaderTest, EqualsDirectReads) {
  const SamplePlan plan = make_sample_plan(1000, 7, 3);
  Loader loader(counting(1000, {.sequence = 7, .seed = 3}), TrainLoaderOptions{.rows = 3});
  EXPECT_EQ(loader.batches_per_pass(), 1);
  for (int64_t step = 0; step < 200; ++step) {  // several epochs
    const Batch& batch = loader.next();
    ASSERT_EQ(batch.first_sample, step * 3);
    EXPECT_EQ(batch.epoch, step * 3 / plan.windows_per_epoch());
    EXPECT_EQ(batch.facts.targets, 21);
    EXPECT_EQ(batch.starts, nullptr);
    for (int64_t b = 0; b < 3; ++b) {
      const int64_t first = plan.window_of(step * 3 + b).first;
      for (int64_t t = 0; t < 7; ++t) {
        ASSERT_EQ(batch.tokens[b * 7 + t], first + t);
        ASSERT_EQ(batch.targets[b * 7 + t], first + t + 1);
      }
    }
  }
}

TEST_F(LoaderTest, SlicesOfRanksMakeTheSameSteps) {
  const auto corpus = counting(500, {.sequence = 4, .seed = 9});
  Loader whole(corpus, TrainLoaderOptions{.rows = 12});
  Loader left(corpus, TrainLoaderOptions{
                          .rows = 2, .global_batch = 12, .slice_first = 0, .slice_count = 6});
  Loader right(corpus, TrainLoaderOptions{
                           .rows = 3, .global_batch = 12, .slice_first = 6, .slice_count = 6});
  EXPECT_EQ(left.batches_per_pass(), 3);
  EXPECT_EQ(right.batches_per_pass(), 2);
  for (int step = 0; step < 20; ++step) {
    std::vector<int32_t> joined;
    for (int i = 0; i < 3; ++i) {
      const auto part = tokens_of(left.next());
      joined.insert(joined.end(), part.begin(), part.end());
    }
    for (int i = 0; i < 2; ++i) {
      const auto part = tokens_of(right.next());
      joined.insert(joined.end(), part.begin(), part.end());
    }
    EXPECT_EQ(joined, tokens_of(whole.next()));
  }
}

TEST_F(LoaderTest, ResumesAndSeeks) {
  const auto corpus = counting(500, {.sequence = 4, .seed = 9});
  const TrainLoaderOptions options{.rows = 2, .global_batch = 4};
  Loader straight(corpus, options);
  std::vector<std::vector<int32_t>> batches;
  batches.reserve(40);
  for (int i = 0; i < 40; ++i) batches.push_back(tokens_of(straight.next()));
  TrainLoaderOptions later = options;
  later.start_step = 10;
  Loader resumed(corpus, later);
  for (size_t i = 20; i < 40; ++i) EXPECT_EQ(tokens_of(resumed.next()), batches[i]);
  for (const int64_t step : {3, 0, 19, 7, 7}) {
    resumed.seek(step);
    const auto at = static_cast<size_t>(step) * 2;
    EXPECT_EQ(tokens_of(resumed.next()), batches[at]);
    EXPECT_EQ(tokens_of(resumed.next()), batches[at + 1]);
  }
}

TEST_F(LoaderTest, EvaluationCoversEveryTargetOnce) {
  for (const int32_t tokens : {2, 8, 9, 10, 57, 64, 65, 66, 129}) {
    Loader loader(counting(tokens, {.sequence = 8}), EvalLoaderOptions{.rows = 3});
    for (int pass = 0; pass < 3; ++pass) {
      std::vector<int32_t> targets;
      int64_t valid = 0;
      for (int64_t i = 0; i < loader.batches_per_pass(); ++i) {
        const Batch& batch = loader.next();
        EXPECT_EQ(batch.first_sample, i * 3);
        valid += batch.facts.targets;
        for (int64_t j = 0; j < batch.rows * batch.sequence; ++j) {
          if (batch.targets[j] == kIgnoredTarget) {
            EXPECT_EQ(batch.tokens[j], 0);
            continue;
          }
          EXPECT_EQ(batch.targets[j], batch.tokens[j] + 1);
          targets.push_back(batch.targets[j]);
        }
      }
      std::vector<int32_t> expected(static_cast<size_t>(tokens - 1));
      std::iota(expected.begin(), expected.end(), 1);
      EXPECT_EQ(targets, expected) << tokens;
      EXPECT_EQ(valid, tokens - 1);
    }
  }
}

TEST_F(LoaderTest, EvaluationOfTheFirstSamples) {
  Loader loader(counting(100, {.sequence = 8}), EvalLoaderOptions{.rows = 2, .max_samples = 3});
  EXPECT_EQ(loader.batches_per_pass(), 2);
  const int64_t first = loader.next().facts.targets;
  EXPECT_EQ(first + loader.next().facts.targets, 24);
}

TEST_F(LoaderTest, EvaluationPartsAreEqualAndCoverTheWhole) {
  for (const int32_t tokens : {2, 9, 57, 64, 129}) {
    for (const int64_t parts : {1, 2, 3, 7}) {
      std::vector<int32_t> targets;
      int64_t batches = -1;
      for (int64_t part = 0; part < parts; ++part) {
        Loader loader(counting(tokens, {.sequence = 8}),
                      EvalLoaderOptions{.rows = 2, .part = part, .parts = parts});
        EXPECT_TRUE(batches < 0 || loader.batches_per_pass() == batches);
        batches = loader.batches_per_pass();
        for (int64_t i = 0; i < batches; ++i) {
          const Batch& batch = loader.next();
          for (int64_t j = 0; j < batch.rows * batch.sequence; ++j) {
            if (batch.targets[j] != kIgnoredTarget) targets.push_back(batch.targets[j]);
          }
        }
      }
      std::sort(targets.begin(), targets.end());
      std::vector<int32_t> expected(static_cast<size_t>(tokens - 1));
      std::iota(expected.begin(), expected.end(), 1);
      EXPECT_EQ(targets, expected) << tokens << " tokens, " << parts << " parts";
    }
  }
}

TEST_F(LoaderTest, RethrowsErrorsOfItsThread) {
  Loader loader(counting(100, {.sequence = 10, .vocabulary = 35}), EvalLoaderOptions{.rows = 1});
  for (int64_t i = 0; i < 3; ++i) EXPECT_EQ(loader.next().tokens[0], i * 10);
  for (int again = 0; again < 2; ++again) {
    const std::string message = error_of(ErrorKind::corrupt, [&] { loader.next(); });
    EXPECT_TRUE(contains(message, "token 35 has the id 35, outside the vocabulary of 35"))
        << message;
  }
  loader.seek(0);
  EXPECT_EQ(loader.next().tokens[0], 0);
}

TEST_F(LoaderTest, EndsPromptlyAtAnyMoment) {
  const auto corpus = counting(5000, {.sequence = 8, .seed = 1});
  const double start = monotonic_seconds();
  for (int i = 0; i < 100; ++i) {
    Loader loader(corpus, TrainLoaderOptions{.rows = 4});
    for (int j = 0; j < i % 4; ++j) loader.next();
    Loader moved = std::move(loader);
    if (i % 2 == 0) moved.next();
  }
  EXPECT_LT(monotonic_seconds() - start, 20);
}

TEST_F(LoaderTest, IsAheadOfASlowerCaller) {
  Loader loader(counting(5000, {.sequence = 64, .seed = 1}), TrainLoaderOptions{.rows = 8});
  // How slow is slow enough depends on what else the machine does.
  bool ahead = false;
  for (double pause = 0.05; !ahead && pause < 10; pause *= 2) {
    loader.next();
    sleep_seconds(pause);
    const double before = loader.wait_seconds();
    loader.next();
    ahead = loader.wait_seconds() == before;
  }
  EXPECT_TRUE(ahead);
}

TEST_F(LoaderTest, OneTokenCannotBeEvaluated) {
  error_of(ErrorKind::usage, [&] { counting(1, {.sequence = 4}); });
}

TEST_F(LoaderTest, ACorpusShorterThanASequenceCannotBeTrainedOn) {
  const auto dataset = counting(4, {.sequence = 4});
  const std::string message =
      error_of(ErrorKind::usage, [&] { Loader(dataset, TrainLoaderOptions{.rows = 1}); });
  EXPECT_TRUE(
      contains(message, "'c' has 4 tokens; one sequence of 4 and the token after it take 5"))
      << message;
}

}  // namespace
}  // namespace tutti::data
