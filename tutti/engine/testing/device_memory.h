// Memory for operands of tests on a GPU: in device memory while kernels run, as in training, and
// migrated to the host by the driver when a test reads it.
#pragma once

#include <cstddef>

namespace tutti::engine::testing {

void* allocate_test_memory(size_t bytes);
void free_test_memory(void* data);

}  // namespace tutti::engine::testing
