// How the commands below `tutti admin` answer.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <string>

#include "tutti/base/json.h"
#include "tutti/cli/control/common.h"
#include "tutti/cli/program/common.h"

namespace tutti::cli {

// A command below `admin`: what it does is `act`, which returns what to say and its JSON.
struct Said {
  std::string text;
  Json json = Json::object();
};
template <typename Arguments, typename Act>
void set_action(CLI::App& command, Action& action, const std::shared_ptr<Arguments>& arguments,
                Act act) {
  add_control_options(command, arguments->control);
  command.callback([arguments, &action, act] {
    action = [arguments, act] {
      ControlSession session(arguments->control);
      const Said said = act(session, *arguments);
      if (arguments->control.json) {
        print_json(said.json);
      } else {
        print_text(said.text);
      }
      return int{exit_ok};
    };
  });
}

}  // namespace tutti::cli
