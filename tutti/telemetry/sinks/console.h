// Text output: permanent lines, and on a terminal one status line below them that is redrawn in
// place. All of it goes to standard error; standard output belongs to --json and to results.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace tutti::telemetry {

struct Console {
  bool terminal = false;  // someone watches: a status line can be redrawn
  bool color = false;
  std::function<int()> columns;  // width now; asked at every redraw, so resizing works
  std::function<void(std::string_view)> write;
};

// Standard error as it is: a terminal unless redirected or TERM=dumb; in colour unless NO_COLOR is
// set to anything (no-color.org).
Console stderr_console();

enum class Tint { plain, good, warning };

// Not thread-safe: owners lock.
class StatusLine {
 public:
  explicit StatusLine(Console console) : console_(std::move(console)) {}
  bool terminal() const { return console_.terminal; }
  int columns() const;
  void show(const std::string& line);  // replaces the status line, cut to the width
  void clear();
  // A line that stays, above the status line. Bytes that are not printable show as \xNN.
  void print(const std::string& line, Tint tint = Tint::plain);

 private:
  Console console_;
  std::string shown_;
};

// "[######......]": `width` characters in all.
std::string progress_bar(double fraction, int width);

// Width of the bar on a terminal of `columns`, 0 for none. Fixed, so that the bar does not dance
// with the length of the text beside it.
int progress_bar_width(int columns);

}  // namespace tutti::telemetry
