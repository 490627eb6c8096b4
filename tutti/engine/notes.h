// What people should know of how this process does its work, such as a slower way that it had to
// take: kept until somebody asks, each text once for as long as the process lives. For any thread.
#pragma once

#include <string>
#include <vector>

namespace tutti::engine {

void note(const std::string& text);
std::vector<std::string> take_notes();  // in the order in which they came

}  // namespace tutti::engine
