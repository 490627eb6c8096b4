// `tutti recipe`: what a recipe may say, for people and for editors.
#include <fmt/format.h>

#include <memory>
#include <string>
#include <vector>

#include "tutti/base/error.h"
#include "tutti/base/text.h"
#include "tutti/cli/program/commands.h"
#include "tutti/cli/program/common.h"
#include "tutti/spec/recipe/key_table.h"

namespace tutti::cli {
namespace {

struct KeysArguments {
  std::string prefix;
  bool markdown = false;
  bool json = false;
};

std::vector<spec::RecipeKey> keys_below(const std::string& prefix) {
  std::vector<spec::RecipeKey> found;
  std::vector<std::string> all;
  for (const spec::RecipeKey& key : spec::recipe_key_table()) {
    all.push_back(key.path);
    if (prefix.empty() || key.path == prefix || starts_with(key.path, prefix + ".")) {
      found.push_back(key);
    }
  }
  if (found.empty()) {
    const std::string suggestion = nearest_word(prefix, all);
    fail(ErrorKind::usage, "no recipe key '{}'{}", prefix,
         suggestion.empty() ? "; `tutti recipe keys` lists all"
                            : fmt::format("; did you mean '{}'?", suggestion));
  }
  return found;
}

int run_keys(const KeysArguments& arguments) {
  if (arguments.markdown) {
    print_text(spec::recipe_keys_markdown());
    return exit_ok;
  }
  const std::vector<spec::RecipeKey> keys = keys_below(arguments.prefix);
  if (arguments.json) {
    Json list = Json::array();
    for (const spec::RecipeKey& key : keys) {
      list.push_back({{"key", key.path},
                      {"accepted", spec::accepted_text(key)},
                      {"default", key.usual},
                      {"meaning", key.help}});
    }
    print_json({{"keys", std::move(list)}});
    return exit_ok;
  }
  std::vector<std::vector<std::string>> cells = {{"key", "accepted", "default", "meaning"}};
  for (const spec::RecipeKey& key : keys) {
    cells.push_back({key.path, spec::accepted_text(key), key.usual, key.help});
  }
  print_text(format_table(cells));
  return exit_ok;
}

void add_keys(CLI::App& group, Action& action) {
  const auto arguments = std::make_shared<KeysArguments>();
  CLI::App* command = group.add_subcommand("keys", "List the keys of a recipe, or those below one");
  command->add_option("KEY", arguments->prefix, "Such as optimizer, or optimizer.beta1");
  command->add_flag("--markdown", arguments->markdown, "As the tables of docs/recipe.md");
  add_json_option(*command, arguments->json);
  command->footer("Example:\n  tutti recipe keys optimizer");
  command->callback(
      [arguments, &action] { action = [arguments] { return run_keys(*arguments); }; });
}

void add_schema(CLI::App& group, Action& action) {
  CLI::App* command = group.add_subcommand(
      "schema", "Print the JSON schema of a recipe, for editors that check and complete");
  command->footer(
      "Example:\n  tutti recipe schema > recipe.schema.json\n"
      "  # first line of a recipe:  # yaml-language-server: $schema=recipe.schema.json");
  command->callback([&action] {
    action = [] {
      print_text(spec::recipe_schema().dump(2) + "\n");
      return exit_ok;
    };
  });
}

}  // namespace

void add_recipe(CLI::App& app, Action& action) {
  CLI::App* group = app.add_subcommand("recipe", "What a recipe may say");
  group->require_subcommand(1);
  add_keys(*group, action);
  add_schema(*group, action);
}

}  // namespace tutti::cli
