// Memory for operands of tests on a GPU: in the device's own memory while its kernels run, where
// what trains has its operands, and copied to the host's by the driver when a test looks.
#pragma once

#include <cstddef>

namespace tutti::engine::testing {

void* allocate_test_memory(size_t bytes);
void free_test_memory(void* data);

}  // namespace tutti::engine::testing
