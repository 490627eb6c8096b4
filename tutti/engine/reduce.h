// Element-wise reduction of several arrays to one.
#pragma once

namespace tutti::engine {

enum class Reduce { sum, max };

}  // namespace tutti::engine
