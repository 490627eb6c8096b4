// How several arrays become one, element by element.
#pragma once

namespace tutti::engine {

enum class Reduce { sum, max };

}  // namespace tutti::engine
