#include "tutti/cli/program/common.h"

#include <cstdio>

#include "tutti/base/error.h"
#include "tutti/base/signals.h"
#include "tutti/base/units.h"

namespace tutti::cli {

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

void print_text(std::string_view text) { std::fwrite(text.data(), 1, text.size(), stdout); }

void flush_output() {
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
    fail(ErrorKind::io,
         "standard output: cannot write the result; is the disk full or the reader "
         "gone?");
  }
}

bool output_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }

}  // namespace tutti::cli
