// Messages for users, on standard error; standard output holds results.
#pragma once

#include <string_view>

namespace tutti {

void print_message(std::string_view text);  // as it is

}  // namespace tutti
