#include "tutti/base/message.h"

#include <cstdio>

namespace tutti {

void print_message(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stderr); }

}  // namespace tutti
