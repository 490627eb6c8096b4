#include "tutti/cli/common.h"

#include <algorithm>
#include <cstdio>

#include "tutti/base/error.h"
#include "tutti/base/signals.h"
#include "tutti/base/units.h"

namespace tutti::cli {
namespace {

void write_to(std::FILE* stream, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stream);
}

}  // namespace

void add_json_option(CLI::App& command, bool& json) {
  command.add_flag("--json", json, "One JSON object on standard output");
}

CLI::Validator at_least(int64_t least) {
  return CLI::Validator(
      [least](const std::string& text) {
        int64_t value = 0;
        const bool number = CLI::detail::lexical_cast(text, value);
        return number && value >= least
                   ? std::string()
                   : fmt::format("'{}' is not accepted; write a whole number from {}", text, least);
      },
      "");
}

CLI::Validator between(double least, double most) {
  return CLI::Validator(
      [least, most](const std::string& text) {
        double value = 0;
        const bool number = CLI::detail::lexical_cast(text, value);
        return number && value >= least && value <= most
                   ? std::string()
                   : fmt::format("'{}' is not accepted; write a number from {} to {}", text, least,
                                 most);
      },
      "");
}

void print_json(const Json& value) { print_text(dump_json(value) + "\n"); }

void print_text(std::string_view text) { write_to(stdout, text); }

void print_message(std::string_view text) { write_to(stderr, text); }

void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fail(ErrorKind::io,
         "standard output: cannot write the result; is the disk full or the reader "
         "gone?");
  }
}

bool output_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }

std::string format_pairs(const std::vector<std::pair<std::string, std::string>>& pairs) {
  size_t width = 0;
  for (const auto& [name, value] : pairs) width = std::max(width, name.size());
  std::string text;
  for (const auto& [name, value] : pairs) {
    text += fmt::format("{:<{}}  {}\n", name, width, value);
  }
  return text;
}

void throw_if_interrupted() {
  if (const int signal = stop_signal(); signal != 0) throw Interrupted{signal};
}

}  // namespace tutti::cli
