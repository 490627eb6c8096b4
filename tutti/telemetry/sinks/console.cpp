#include "tutti/telemetry/sinks/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "tutti/base/text.h"

namespace tutti::telemetry {
namespace {

constexpr const char* kClearLine = "\r\x1b[K";
constexpr int kDefaultColumns = 80;

bool has_value(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

int stderr_columns() {
  winsize size{};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
  return kDefaultColumns;
}

}  // namespace

Console stderr_console() {
  const char* term = std::getenv("TERM");
  const bool dumb = term != nullptr && std::string_view(term) == "dumb";
  Console console;
  console.terminal = isatty(STDERR_FILENO) != 0 && !dumb;
  console.color = console.terminal && !has_value("NO_COLOR");
  console.columns = stderr_columns;
  console.write = [](std::string_view text) {
    std::fwrite(text.data(), 1, text.size(), stderr);
    std::fflush(stderr);
  };
  return console;
}

int StatusLine::columns() const { return console_.columns ? console_.columns() : kDefaultColumns; }

void StatusLine::show(const std::string& line) {
  if (!console_.terminal) return;
  // One column stays free: some terminals wrap when the last one is written.
  shown_ = line.substr(0, static_cast<size_t>(std::max(0, columns() - 1)));
  console_.write(kClearLine + shown_);
}

void StatusLine::clear() {
  if (shown_.empty()) return;
  shown_.clear();
  console_.write(kClearLine);
}

void StatusLine::print(const std::string& line, Tint tint) {
  std::string text = printable(line);
  if (console_.color && tint != Tint::plain) {
    text = (tint == Tint::good ? "\x1b[32m" : "\x1b[33m") + text + "\x1b[0m";
  }
  if (shown_.empty()) {
    console_.write(text + "\n");
  } else {
    console_.write(kClearLine + text + "\n" + shown_);
  }
}

std::string progress_bar(double fraction, int width) {
  const int cells = std::max(0, width - 2);
  const double part = std::isfinite(fraction) ? std::clamp(fraction, 0.0, 1.0) : 0.0;
  const int full = static_cast<int>(part * cells);
  return "[" + std::string(static_cast<size_t>(full), '#') +
         std::string(static_cast<size_t>(cells - full), '.') + "]";
}

int progress_bar_width(int columns) {
  if (columns >= 120) return 26;
  if (columns >= 100) return 16;
  return columns >= 40 ? 10 : 0;
}

}  // namespace tutti::telemetry
