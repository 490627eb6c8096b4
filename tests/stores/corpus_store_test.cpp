// Corpora in an object store: the same tokens in the same order as from a disk, each piece fetched
// once while the cache can hold it, and no damage that is trained on.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>

#include "tutti/base/clock.h"
#include "tutti/base/testing/memory_file.h"
#include "tutti/data/corpus/dataset.h"
#include "tutti/data/corpus/inspect.h"
#include "tutti/data/loader/loader.h"
#include "tutti/data/testing/test_support.h"
#include "tutti/object/testing/fake_store.h"

namespace tutti::data {
namespace {

using object::FakeStore;

constexpr const char* kFar = "s3://bucket/corpora/numbers";
constexpr int32_t kTokens = 100'000;  // 400,000 bytes: 7 pieces

// A store that answers none of the requests that come after expect() before so many are under way.
class PatientStore final : public object::Transport {
 public:
  explicit PatientStore(std::shared_ptr<FakeStore> store) : store_(std::move(store)) {}
  void expect(int requests) { expected_ = requests; }
  bool met() const { return met_; }

  object::Response send(const object::Request& request) override {
    constexpr double kPatienceSeconds = 20;
    ++under_way_;
    const double begin = monotonic_seconds();
    while (expected_ > 0 && !met_ && monotonic_seconds() - begin < kPatienceSeconds) {
      if (under_way_ >= expected_) met_ = true;
      sleep_seconds(0.001);
    }
    object::Response response = store_->send(request);
    --under_way_;
    return response;
  }

 private:
  std::shared_ptr<FakeStore> store_;
  std::atomic<int> expected_{0};
  std::atomic<int> under_way_{0};
  std::atomic<bool> met_{false};
};

class CorpusStoreTest : public ::testing::Test {
 protected:
  CorpusStoreTest() {
    std::string name = (std::filesystem::temp_directory_path() / "tutti-pieces-XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    local_.create_directories("near");
    write_counting_corpus(local_, "near/numbers", kTokens);
    write_counting_corpus(*files_, kFar, kTokens);
  }
  ~CorpusStoreTest() override { std::filesystem::remove_all(folder_); }

  DatasetOptions options(int64_t cache_bytes = 0) const {
    DatasetOptions options;
    options.sequence = 100;
    options.seed = 7;
    options.cache = {folder_, cache_bytes};
    return options;
  }
  static std::vector<int32_t> samples(const Dataset& dataset, int64_t count) {
    std::vector<int32_t> out;
    std::vector<int32_t> tokens(100);
    std::vector<int32_t> targets(100);
    for (int64_t i = 0; i < count; ++i) {
      SampleRows rows;
      rows.tokens = tokens.data();
      rows.targets = targets.data();
      dataset.training_sample(i, rows);
      out.insert(out.end(), tokens.begin(), tokens.end());
      out.insert(out.end(), targets.begin(), targets.end());
    }
    return out;
  }
  Dataset far(int64_t cache_bytes = 0) {
    return {*files_, spec::CorpusBlend(kFar), options(cache_bytes)};
  }
  Dataset near() { return {local_, spec::CorpusBlend("near/numbers"), options()}; }
  std::string cache_file() const {
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      return entry.path().string();
    }
    return {};
  }

  std::shared_ptr<FakeStore> store_ = std::make_shared<FakeStore>();
  MemoryFileSystem local_;
  std::unique_ptr<object::RoutedFileSystem> files_ = object::files_over(store_, local_, 2);
  std::string folder_;
};

TEST_F(CorpusStoreTest, TheFilesOfACorpusAreThoseOfADisk) {
  for (const char* suffix : {".bin", ".idx", ".checksums"}) {
    EXPECT_EQ(read_file(*files_, std::string(kFar) + suffix),
              read_file(local_, std::string("near/numbers") + suffix))
        << suffix;
  }
  EXPECT_EQ(store_->objects().size(), 3U);
}

// A process that is killed ends no uploads: the next one that writes the corpus does.
TEST_F(CorpusStoreTest, UploadsOfAKilledWriterAreEnded) {
  const object::Client client(object::fake_settings(), store_, object::without_waiting(1));
  for (const char* suffix : {".bin", ".idx", ".checksums"}) {
    client.begin_upload({"bucket", std::string("corpora/numbers") + suffix});
  }
  client.begin_upload({"bucket", "corpora/numbers-validation.bin"});  // perhaps being written
  write_counting_corpus(*files_, kFar, 1000);
  EXPECT_EQ(store_->open_uploads(), 1);
}

TEST_F(CorpusStoreTest, TheSameSamplesInTheSameOrderEachPieceOnce) {
  const Dataset here = near();
  const Dataset there = far();
  EXPECT_TRUE(there.by_pieces());
  EXPECT_FALSE(here.by_pieces());
  const int64_t windows = (kTokens - 1) / 100;
  EXPECT_EQ(samples(there, 2 * windows), samples(here, 2 * windows));  // two epochs
  EXPECT_EQ(there.fetched_bytes(), 4 * int64_t{kTokens});
}

TEST_F(CorpusStoreTest, ALaterSessionReadsFromTheCache) {
  const std::vector<int32_t> expected = samples(far(), 500);
  const Dataset again = far();
  EXPECT_EQ(samples(again, 500), expected);
  EXPECT_EQ(again.fetched_bytes(), 0);
}

TEST_F(CorpusStoreTest, TheCacheIsBounded) {
  // 64 pieces is the least, so a corpus of more: 4 MiB and a half.
  const int32_t count = 1'200'000;
  write_counting_corpus(local_, "near/large", count);
  write_counting_corpus(*files_, "s3://bucket/large", count);
  const int64_t bound = 64 * kChecksumPieceBytes;
  const Dataset here(local_, spec::CorpusBlend("near/large"), options());
  const Dataset there(*files_, spec::CorpusBlend("s3://bucket/large"), options(bound));
  EXPECT_EQ(samples(there, 3000), samples(here, 3000));
  EXPECT_GT(there.fetched_bytes(), 4 * int64_t{count});  // some had to go and came again
  int64_t blocks = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
    struct stat info {};
    ASSERT_EQ(::stat(entry.path().c_str(), &info), 0);
    blocks += info.st_blocks;
  }
  EXPECT_LE(512 * blocks, bound + kChecksumPieceBytes);
  EXPECT_GT(512 * blocks, bound / 2);
}

TEST_F(CorpusStoreTest, ADamagedCacheIsFetchedAgain) {
  const std::vector<int32_t> expected = samples(far(), 1500);
  {
    std::fstream file(cache_file(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(200'000);
    file.write("damage", 6);
  }
  std::filesystem::resize_file(cache_file(), 300'000);  // and its end is lost
  const Dataset again = far();
  EXPECT_EQ(samples(again, 1500), expected);
  EXPECT_GT(again.fetched_bytes(), 0);
  EXPECT_LT(again.fetched_bytes(), 4 * int64_t{kTokens});
}

TEST_F(CorpusStoreTest, ADamagedCorpusIsAnErrorThatNamesItsBytes) {
  std::string bin = store_->objects().at("bucket/corpora/numbers.bin");
  bin[70'000] = static_cast<char>(bin[70'000] ^ 1);
  store_->set_object("bucket/corpora/numbers.bin", bin);
  const std::string message = error_of(ErrorKind::corrupt, [&] { samples(far(), 1500); });
  EXPECT_TRUE(contains(message, "bytes 65536 to 131071")) << message;
  EXPECT_TRUE(contains(message, "numbers.bin")) << message;
}

// Its checksums are of the tokens that are there: nothing of the old corpus is read from the cache.
TEST_F(CorpusStoreTest, AReplacedCorpusHasACacheOfItsOwn) {
  samples(far(), 1500);
  std::vector<int32_t> other(kTokens, 5);
  write_corpus(*files_, kFar, {other}, DType::i32);
  const std::vector<int32_t> found = samples(far(), 10);
  EXPECT_EQ(found[0], 5);
}

TEST_F(CorpusStoreTest, ThreadsShareWhatIsFetched) {
  const Dataset there = far();
  const std::vector<int32_t> expected = samples(near(), 400);
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&] { wrong += samples(there, 400) != expected; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_LE(there.fetched_bytes(), 4 * int64_t{kTokens});
}

// Announced ahead, the pieces come beside each other: the latency of one is that of all.
TEST_F(CorpusStoreTest, TheLoaderFetchesAheadSeveralAtOnce) {
  const auto patient = std::make_shared<PatientStore>(store_);
  const auto files = object::files_over(patient, local_, 2);
  const auto there = std::make_shared<const Dataset>(*files, spec::CorpusBlend(kFar), options());
  const auto here = std::make_shared<const Dataset>(near());
  patient->expect(5);
  TrainLoaderOptions loading;
  loading.rows = 4;
  Loader far_loader(there, loading);
  Loader near_loader(here, loading);
  for (int i = 0; i < 100; ++i) {
    const Batch& a = far_loader.next();
    const Batch& b = near_loader.next();
    ASSERT_EQ(std::vector<int32_t>(a.tokens, a.tokens + 400),
              std::vector<int32_t>(b.tokens, b.tokens + 400));
    ASSERT_EQ(a.first_sample, b.first_sample);
  }
  EXPECT_TRUE(patient->met());
  EXPECT_EQ(there->fetched_bytes(), 4 * int64_t{kTokens});
}

TEST_F(CorpusStoreTest, AQuickInspectionFetchesTheSampleOnly) {
  InspectOptions quick;
  quick.verify = false;
  quick.sample_first = 90'000;
  quick.sample_tokens = 10;
  const int64_t before = store_->bytes_read();
  const CorpusInspection far = inspect_corpus(*files_, kFar, quick);
  EXPECT_LT(store_->bytes_read() - before, 1000);  // of 400,000
  const CorpusInspection near = inspect_corpus(local_, "near/numbers", quick);
  EXPECT_TRUE(far.ok);
  EXPECT_EQ(far.sample_ids, near.sample_ids);
  EXPECT_EQ(far.sample_ids[0], 90'000);
  EXPECT_EQ(far.bin_bytes, near.bin_bytes);
  EXPECT_EQ(far.checks.size(), near.checks.size());
  EXPECT_TRUE(inspect_corpus(*files_, kFar).ok);
}

TEST_F(CorpusStoreTest, WithoutChecksumsItSaysWhatHelps) {
  files_->remove_file(std::string(kFar) + ".checksums");
  const std::string message = error_of(ErrorKind::not_found, [&] { far(); });
  EXPECT_TRUE(contains(message, "has no checksums")) << message;
  record_checksums(*files_, kFar);
  EXPECT_EQ(samples(far(), 50), samples(near(), 50));
}

}  // namespace
}  // namespace tutti::data
