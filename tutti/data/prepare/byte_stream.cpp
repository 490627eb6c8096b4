#include "tutti/data/prepare/byte_stream.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <utility>

#include "tutti/base/check.h"
#include "tutti/base/error.h"

namespace tutti::data {
namespace {

constexpr size_t kLargestStep = size_t{1} << 30;  // zlib counts in 32 bits

[[noreturn]] void fail_truncated(const std::string& path) {
  fail(ErrorKind::corrupt, "'{}' is truncated: its compressed data ends early", path);
}

class GzipStream final : public ByteStream {
 public:
  GzipStream(std::string_view data, std::string path) : data_(data), path_(std::move(path)) {
    TUTTI_CHECK(inflateInit2(&state_, kGzipWindow) == Z_OK, "zlib cannot start");
  }
  GzipStream(const GzipStream&) = delete;
  GzipStream& operator=(const GzipStream&) = delete;
  ~GzipStream() override { inflateEnd(&state_); }

  size_t read(char* out, size_t size) override {
    size_t done = 0;
    while (done == 0 && (at_ < data_.size() || inside_)) {
      const size_t give = std::min(data_.size() - at_, kLargestStep);
      const size_t want = std::min(size, kLargestStep);
      // zlib reads through this pointer only; its interface predates const.
      state_.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(data_.data() + at_));
      state_.avail_in = static_cast<uInt>(give);
      state_.next_out = reinterpret_cast<Bytef*>(out);
      state_.avail_out = static_cast<uInt>(want);
      const int status = inflate(&state_, Z_NO_FLUSH);
      at_ += give - state_.avail_in;
      done = want - state_.avail_out;
      if (status == Z_STREAM_END) {
        inside_ = false;
        if (at_ < data_.size()) inflateReset(&state_);
      } else if (status == Z_OK) {
        inside_ = true;
      } else if (status == Z_BUF_ERROR && at_ == data_.size()) {
        fail_truncated(path_);
      } else {
        fail(ErrorKind::corrupt, "'{}' is not valid gzip data at byte {}: {}", path_, at_,
             state_.msg != nullptr ? state_.msg : "damaged");
      }
    }
    return done;
  }

  int64_t consumed() const override { return static_cast<int64_t>(at_); }

 private:
  static constexpr int kGzipWindow = 15 + 16;  // largest window, gzip header

  std::string_view data_;
  std::string path_;
  size_t at_ = 0;
  bool inside_ = true;  // of a member that has not ended
  z_stream state_{};
};

class ZstdStream final : public ByteStream {
 public:
  ZstdStream(std::string_view data, std::string path)
      : path_(std::move(path)),
        input_{data.data(), data.size(), 0},
        state_(ZSTD_createDStream(), ZSTD_freeDStream) {
    TUTTI_CHECK(state_ != nullptr, "libzstd cannot start");
    // Large archives are often made with --long=31, which the library refuses by default.
    const int longest = ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound;
    const size_t set = ZSTD_DCtx_setParameter(state_.get(), ZSTD_d_windowLogMax, longest);
    TUTTI_CHECK(ZSTD_isError(set) == 0U, "libzstd has no windows of 2^{} bytes", longest);
  }

  size_t read(char* out, size_t size) override {
    ZSTD_outBuffer output{out, size, 0};
    while (output.pos == 0 && (input_.pos < input_.size || inside_)) {
      const size_t before = input_.pos;
      const size_t hint = ZSTD_decompressStream(state_.get(), &output, &input_);
      if (ZSTD_isError(hint) != 0U) {
        fail(ErrorKind::corrupt, "'{}' is not valid Zstandard data at byte {}: {}", path_,
             input_.pos, ZSTD_getErrorName(hint));
      }
      inside_ = hint != 0;
      if (inside_ && output.pos == 0 && input_.pos == before && input_.pos == input_.size) {
        fail_truncated(path_);
      }
    }
    return output.pos;
  }

  int64_t consumed() const override { return static_cast<int64_t>(input_.pos); }

 private:
  std::string path_;
  ZSTD_inBuffer input_;
  std::unique_ptr<ZSTD_DStream, size_t (*)(ZSTD_DStream*)> state_;
  bool inside_ = true;  // of a frame that has not ended
};

}  // namespace

std::unique_ptr<ByteStream> open_compressed(std::string_view compressed, Compression compression,
                                            const std::string& path) {
  if (compression == Compression::gzip) return std::make_unique<GzipStream>(compressed, path);
  TUTTI_CHECK(compression == Compression::zstd, "'{}' is not compressed", path);
  return std::make_unique<ZstdStream>(compressed, path);
}

}  // namespace tutti::data
