#include "tutti/cli/program/manual.h"

#include <fmt/format.h>

#include <cctype>

#include "tutti/base/text.h"

namespace tutti::cli {
namespace {

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// One line of text that roff leaves as it is. What is not ASCII stays UTF-8, which man reads.
std::string roff(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') out += "\\e";
    else if (c == '-') out += "\\-";
    else if (c == '\'') out += "\\(aq";
    else if (c == '`') out += "\\(ga";
    else if (c == '^') out += "\\(ha";
    else if (c == '~') out += "\\(ti";
    else if (c == '\n') out += ' ';
    else out += c;
  }
  // A line that starts with a dot would be a request.
  return starts_with(out, ".") ? "\\&" + out : out;
}

std::string verbatim(std::string_view text) {
  std::string out = ".nf\n";
  for (const std::string_view line : split(text, '\n')) out += roff(line) + "\n";
  return out + ".fi\n";
}

std::string synopsis(const CommandPage& page) {
  std::string out = ".B tutti";
  for (const std::string& word : page.words) out += " " + roff(word);
  out += "\n";
  if (!page.commands.empty()) return out + ".I COMMAND\n\\&...\n";
  out += "[\\fIOPTIONS\\fR]\n";
  for (const OptionPage& option : page.options) {
    if (!option.positional) continue;
    const std::string name =
        fmt::format("\\fI{}\\fR{}", roff(option.value), option.many ? "\\&..." : "");
    out += option.required ? name + "\n" : "[" + name + "]\n";
  }
  return out;
}

std::string option_text(const OptionPage& option) {
  std::string head;
  for (const std::string& name : option.names) {
    head += fmt::format("{}\\f{}{}\\fR", head.empty() ? "" : ", ", option.positional ? 'I' : 'B',
                        roff(name));
  }
  if (!option.positional && !option.value.empty()) {
    head += fmt::format(" \\fI{}\\fR", roff(option.value));
  }
  if (option.many) head += " ...";
  std::string out = fmt::format(".TP\n{}\n{}\n", head, roff(option.description));
  std::vector<std::string> notes;
  if (option.required) notes.emplace_back("Required.");
  if (!option.default_value.empty()) notes.push_back("Default: " + option.default_value + ".");
  if (!option.environment.empty()) notes.push_back("Environment: " + option.environment + ".");
  if (!notes.empty()) out += ".br\n" + roff(join(notes, " ")) + "\n";
  return out;
}

std::string options_section(const CommandPage& page, bool positional, const char* title) {
  std::string out;
  for (const OptionPage& option : page.options) {
    if (option.positional == positional) out += option_text(option);
  }
  return out.empty() ? out : fmt::format(".SH {}\n{}", title, out);
}

std::string commands_section(const CommandPage& page) {
  if (page.commands.empty()) return {};
  std::string out = ".SH COMMANDS\n";
  for (const CommandPage& below : page.commands) {
    out += fmt::format(".TP\n.BR {} (1)\n{}\n", roff(manual_name(below)), roff(below.description));
  }
  return out;
}

std::string see_also(const CommandPage& page) {
  if (page.words.empty()) return {};
  CommandPage above;
  above.words.assign(page.words.begin(), page.words.end() - 1);
  return fmt::format(".SH SEE ALSO\n.BR {} (1)\n", roff(manual_name(above)));
}

}  // namespace

std::string manual_name(const CommandPage& page) {
  return page.words.empty() ? "tutti" : "tutti-" + join(page.words, "-");
}

std::string manual_page(const CommandPage& page, const std::string& version) {
  const std::string name = manual_name(page);
  return fmt::format(".TH \"{}\" 1 \"\" \"Tutti {}\" \"Tutti\"\n", roff(upper(name)),
                     roff(version)) +
         fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(page.description)) +
         ".SH SYNOPSIS\n" + synopsis(page) + commands_section(page) +
         options_section(page, true, "ARGUMENTS") + options_section(page, false, "OPTIONS") +
         (page.footer.empty() ? "" : ".SH NOTES\n" + verbatim(trim(page.footer))) + see_also(page);
}

}  // namespace tutti::cli
