// Output and exit code of a command with several ranks.
#pragma once

#include <string>

namespace tutti::launch {

// Of a process that is one of several ranks of a command: "rank 2: "; else nothing.
std::string rank_prefix();

// Whether it is this process that prints the command's JSON: not a rank of a launcher of our own,
// which does it, nor a rank beside rank 0.
bool answers_for_the_command();

// Thrown: ends the command without a word, with this exit code; another rank has said why.
struct EndedQuietly {
  int code;
};

}  // namespace tutti::launch
