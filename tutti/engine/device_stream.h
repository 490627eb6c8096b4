// A stream on a device with libraries of its own, such as CUDA's.
#pragma once

#include "tutti/engine/stream.h"

namespace tutti::engine {

class DeviceStream : public Stream {
 public:
  // What those libraries call it: of CUDA, a cudaStream_t.
  virtual void* native_handle() = 0;

 protected:
  using Stream::Stream;
};

}  // namespace tutti::engine
