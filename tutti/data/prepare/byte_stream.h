// Reads a compressed file piece by piece: gzip (also several members, as `cat a.gz b.gz` makes)
// through zlib, Zstandard (also several frames) through libzstd. Bounded memory: of Zstandard the
// window that the file was made with, 8 MiB or less unless `zstd --long` made it (2 GiB at most).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "tutti/data/prepare/sources.h"

namespace tutti::data {

class ByteStream {
 public:
  virtual ~ByteStream() = default;
  // Fills `out` with up to `size` bytes and returns how many; 0 only at the end. Throws corrupt
  // naming the path for damaged or truncated data.
  virtual size_t read(char* out, size_t size) = 0;
  // Compressed bytes consumed so far.
  virtual int64_t consumed() const = 0;
};

// `compressed` must outlive the stream. `compression` is gzip or zstd.
std::unique_ptr<ByteStream> open_compressed(std::string_view compressed, Compression compression,
                                            const std::string& path);

}  // namespace tutti::data
