// A stream on a device with its own libraries, such as CUDA's.
#pragma once

#include "tutti/engine/stream.h"

namespace tutti::engine {

class DeviceStream : public Stream {
 public:
  // Handle of the stream in those libraries: a cudaStream_t for CUDA.
  virtual void* native_handle() = 0;

 protected:
  using Stream::Stream;
};

}  // namespace tutti::engine
