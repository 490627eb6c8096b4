#include "tutti/object/object_writer.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tutti/base/error.h"
#include "tutti/object/testing/fake_store.h"

namespace tutti::object {
namespace {

class ObjectWriterTest : public testing::Test {
 protected:
  static std::string numbers(size_t size) {
    std::string out;
    while (out.size() < size) out += std::to_string(out.size()) + " ";
    out.resize(size);
    return out;
  }
  void write(const std::string& bytes, const WriteLimits& limits, size_t step) {
    ObjectWriter writer(client_, {"bucket", "key"}, limits);
    for (size_t at = 0; at < bytes.size(); at += step) {
      writer.append(bytes.data() + at, std::min(step, bytes.size() - at));
    }
    writer.sync();
    EXPECT_EQ(store_->objects().count("bucket/key"), 0U);  // not before it is closed
    writer.close();
  }

  std::shared_ptr<FakeStore> store_ = std::make_shared<FakeStore>();
  Client client_{fake_settings(), store_, without_waiting(3)};
};

TEST_F(ObjectWriterTest, AnySizeInPartsOfAnySize) {
  for (const int parallel : {0, 1, 3}) {
    for (const size_t size : {0, 1, 9, 10, 11, 20, 95}) {
      for (const size_t step : {1, 7, 10, 100}) {
        const std::string bytes = numbers(size);
        write(bytes, {.part_bytes = 10, .parallel = parallel}, step);
        EXPECT_EQ(store_->objects().at("bucket/key"), bytes) << size << " by " << step;
        client_.remove({"bucket", "key"});
      }
    }
  }
  EXPECT_EQ(store_->open_uploads(), 0);
}

TEST_F(ObjectWriterTest, WhatIsNotClosedLeavesNothing) {
  for (const int parallel : {0, 2}) {
    ObjectWriter writer(client_, {"bucket", "key"}, {.part_bytes = 10, .parallel = parallel});
    writer.append(numbers(35).data(), 35);
  }
  EXPECT_TRUE(store_->objects().empty());
  EXPECT_EQ(store_->open_uploads(), 0);
}

// At every request of an upload: a failure that passes changes nothing, one that lasts is an error,
// and what is there is the old object or the new one.
TEST_F(ObjectWriterTest, FailuresAtEveryRequest) {
  const std::string old = "old";
  const std::string bytes = numbers(45);
  for (const int parallel : {0, 3}) {
    for (const Failure failure : {Failure::refused, Failure::answer_lost, Failure::unavailable}) {
      for (const bool lasting : {false, true}) {
        for (int64_t index = 0; index < 8; ++index) {
          store_->set_object("bucket/key", old);
          store_->fail_request(index, failure, lasting);
          bool failed = false;
          try {
            ObjectWriter writer(client_, {"bucket", "key"},
                                {.part_bytes = 10, .parallel = parallel});
            writer.append(bytes.data(), bytes.size());
            writer.close();
          } catch (const Error& error) {
            EXPECT_EQ(error.kind(), ErrorKind::io);
            failed = true;
          }
          const std::string found = store_->objects().at("bucket/key");
          EXPECT_TRUE(found == old || found == bytes) << index;
          EXPECT_TRUE(failed || found == bytes) << index;
          EXPECT_EQ(failed, lasting && index < 7) << index;  // begin, five parts, complete
          store_->clear_faults();
          for (const Upload& upload : client_.list_uploads("bucket", "")) {
            client_.abort_upload({"bucket", upload.key}, upload.id);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace tutti::object
