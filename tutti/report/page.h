// The frame of every page: one file with its style and script, without network access (its content
// security policy forbids it), follows the reader's light or dark setting with a button to change
// it, and reads on a phone, on a desk, on paper and with scripts switched off.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tutti::report {

struct Section {
  std::string id;
  std::string title;  // empty: no heading, not in the contents
  std::string html;
};

// A number that matters, large.
struct Tile {
  std::string name;
  std::string value;
  std::string note;
};

struct Page {
  std::string kind;   // "Training run"
  std::string title;  // the run's name
  std::string lead;   // one or two sentences
  std::string status;
  enum class Tone { good, neutral, bad } tone = Tone::neutral;
  std::vector<std::string> notes;  // what the reader should know about gaps in the data
  std::vector<Tile> tiles;
  std::vector<Section> sections;
  std::string footer;
};

// The whole document. All texts are escaped here; only Section::html is markup.
std::string render(const Page& page);

// The parts that do not depend on the page (page_style.cpp, page_script.cpp).
std::string_view page_style();
std::string_view page_script();
// "sha256-...": the only script that the page's policy lets run. A test compares it with the
// script.
std::string_view page_script_hash();

}  // namespace tutti::report
