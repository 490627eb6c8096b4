#include "tutti/cli/program/completion_scripts.h"

#include <fmt/format.h>

#include "tutti/base/text.h"

namespace tutti::cli {
namespace {

// Words of the program have no character that a shell reads in single quotes but this one.
std::string shell_quoted(std::string_view text, std::string_view apostrophe) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') out += apostrophe;
    else if (c == '\n') out += ' ';
    else out += c;
  }
  return out + "'";
}

// Of all options, or of those that take a value.
std::string option_names(const CommandPage& page, bool with_value_only) {
  std::vector<std::string> names;
  for (const OptionPage& option : page.options) {
    if (option.positional || (with_value_only && option.value.empty())) continue;
    names.insert(names.end(), option.names.begin(), option.names.end());
  }
  return join(names, " ");
}

std::string command_names(const CommandPage& page) {
  std::vector<std::string> names;
  for (const CommandPage& below : page.commands) names.push_back(below.words.back());
  return join(names, " ");
}

bool takes_recipe(const CommandPage& page) {
  for (const OptionPage& option : page.options) {
    if (option.positional && option.value == "RECIPE") return true;
  }
  return false;
}

constexpr std::string_view kBashEnd = R"(
# Whether $1 is one of the words of $2.
_tutti_has() { [[ -n $1 && " $2 " == *" $1 "* ]]; }

_tutti() {
  local word=${COMP_WORDS[COMP_CWORD]} before='' path='' i
  local commands options values recipes
  COMPREPLY=()
  _tutti_table "$path"
  for ((i = 1; i < COMP_CWORD; ++i)); do
    before=${COMP_WORDS[i]}
    if _tutti_has "$before" "$commands"; then
      path="${path:+$path }$before"
      _tutti_table "$path"
    fi
  done
  if _tutti_has "$before" "$values"; then return; fi
  local words=$commands
  if [[ $word == -* ]]; then
    words=$options
  elif [[ -n $recipes ]]; then
    words=$("${COMP_WORDS[0]}" completion recipes 2> /dev/null)
    mapfile -t COMPREPLY < <(compgen -f -- "$word")
    compopt -o filenames 2> /dev/null
  fi
  local found
  mapfile -t found < <(compgen -W "$words" -- "$word")
  COMPREPLY+=("${found[@]}")
}
complete -o default -F _tutti tutti
)";

constexpr std::string_view kZshEnd = R"(
_tutti() {
  local path_words='' before='' i
  local -a commands options values
  local recipes
  _tutti_table ''
  for ((i = 2; i < CURRENT; ++i)); do
    before=${words[i]}
    if (( ${commands[(I)${before}:*]} )); then
      path_words="${path_words:+$path_words }$before"
      _tutti_table "$path_words"
    fi
  done
  if [[ -n $before ]] && (( ${values[(Ie)$before]} )); then
    _files
  elif [[ $PREFIX == -* ]]; then
    _describe option options
  elif (( $#commands )); then
    _describe command commands
  else
    if [[ -n $recipes ]]; then compadd -- $(${words[1]} completion recipes 2> /dev/null); fi
    _files
  fi
}
# From a folder of $fpath this file is the function itself; sourced, it only defines it.
if [[ $funcstack[1] == _tutti ]]; then
  _tutti "$@"
else
  compdef _tutti tutti
fi
)";

// "name:description" in single quotes, as _describe reads it.
std::string zsh_entry(std::string_view name, std::string_view description) {
  std::string escaped;
  for (const char c : std::string(name))
    escaped += c == ':' ? std::string("\\:") : std::string(1, c);
  return shell_quoted(escaped + ":" + std::string(description), "'\\''");
}

std::string zsh_commands(const CommandPage& page) {
  std::vector<std::string> out;
  for (const CommandPage& below : page.commands) {
    out.push_back(zsh_entry(below.words.back(), below.description));
  }
  return join(out, " ");
}

std::string zsh_options(const CommandPage& page) {
  std::vector<std::string> out;
  for (const OptionPage& option : page.options) {
    if (option.positional) continue;
    for (const std::string& name : option.names) out.push_back(zsh_entry(name, option.description));
  }
  return join(out, " ");
}

// "--long" as `-l long`, "-h" as `-s h`.
std::string fish_names(const OptionPage& option) {
  std::string out;
  for (const std::string& name : option.names) {
    const bool is_long = starts_with(name, "--");
    out += fmt::format(" -{} {}", is_long ? 'l' : 's', name.substr(is_long ? 2 : 1));
  }
  return out;
}

constexpr std::string_view kFishStart = R"(# Completion of tutti for fish.
# Whether the commands on the line so far are $argv[1], such as " data prepare".
function __tutti_at
  set -l path ''
  for word in (commandline -opc)[2..]
    if contains -- "$path $word" $__tutti_paths
      set path "$path $word"
    end
  end
  test "$path" = "$argv[1]"
end
)";

}  // namespace

std::string bash_completion(const CommandPage& program) {
  std::string out =
      "# Completion of tutti for bash.\n_tutti_table() {\n"
      "  commands='' options='' values='' recipes=''\n  case $1 in\n";
  for (const CommandPage* page : all_pages(program)) {
    out += fmt::format("  {})\n    commands='{}'\n    options='{}'\n    values='{}'\n",
                       shell_quoted(join(page->words, " "), ""), command_names(*page),
                       option_names(*page, false), option_names(*page, true));
    out += takes_recipe(*page) ? "    recipes=1 ;;\n" : "    ;;\n";
  }
  return out + "  esac\n}\n" + std::string(kBashEnd);
}

std::string zsh_completion(const CommandPage& program) {
  std::string out =
      "#compdef tutti\n# Completion of tutti for zsh.\n_tutti_table() {\n"
      "  commands=() options=() values=() recipes=''\n  case $1 in\n";
  for (const CommandPage* page : all_pages(program)) {
    out += fmt::format("  ({})\n    commands=({})\n    options=({})\n    values=({})\n",
                       shell_quoted(join(page->words, " "), ""), zsh_commands(*page),
                       zsh_options(*page), option_names(*page, true));
    out += takes_recipe(*page) ? "    recipes=1 ;;\n" : "    ;;\n";
  }
  return out + "  esac\n}\n" + std::string(kZshEnd);
}

std::string fish_completion(const CommandPage& program) {
  std::string paths, out;
  for (const CommandPage* page : all_pages(program)) {
    const std::string path = (page->words.empty() ? "" : " ") + join(page->words, " ");
    if (!page->words.empty()) paths += " '" + path + "'";
    const std::string start = fmt::format("complete -c tutti -n \"__tutti_at '{}'\"", path);
    for (const CommandPage& below : page->commands) {
      out += fmt::format("{} -f -a {} -d {}\n", start, below.words.back(),
                         shell_quoted(below.description, "\\'"));
    }
    if (takes_recipe(*page)) out += start + " -a '(tutti completion recipes)' -d recipe\n";
    for (const OptionPage& option : page->options) {
      if (option.positional) continue;
      out +=
          fmt::format("{}{}{} -d {}\n", start, fish_names(option),
                      option.value.empty() ? "" : " -r", shell_quoted(option.description, "\\'"));
    }
  }
  return std::string(kFishStart) + "set -g __tutti_paths" + paths + "\n" + out;
}

}  // namespace tutti::cli
