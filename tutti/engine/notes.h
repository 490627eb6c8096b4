// Notes for users about this process, such as a slow path that it had to take: stored until
// take_notes(), each text once in the lifetime of the process. Thread-safe.
#pragma once

#include <string>
#include <vector>

namespace tutti::engine {

void note(const std::string& text);
std::vector<std::string> take_notes();  // in the order of the note() calls

}  // namespace tutti::engine
