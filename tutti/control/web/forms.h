// The forms of the page: logging in, submitting a recipe, steering a job.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tutti/control/jobs/requests.h"
#include "tutti/control/people/permission.h"
#include "tutti/control/web/sessions.h"

namespace tutti::control {

inline constexpr const char* kWebScript = "/app.js";  // path

// What the submission form holds, as it came.
struct WebSubmission {
  std::string recipe;  // a name, such as "demo"; empty: `text` is the recipe
  std::string text;
  std::vector<std::string> overrides;  // KEY=VALUE
  std::string project;
  std::string name;
  std::string time_limit;
  std::string usd;
  int64_t nodes = 1;
  int64_t cores = 0;
  std::string key;     // the same for all attempts to send one form
  std::string client;  // address that it came from, for the audit log; of no field
};

// What `tutti submit` said.
struct WebAnswer {
  Forecast forecast;
  std::vector<std::string> warnings;
};

// How a recipe becomes a job: of the commands, which know recipes and the planner; the token says
// for whom. Throws as submit does, and usage for a wrong recipe.
using WebSubmit =
    std::function<WebAnswer(const std::string& token, const WebSubmission&, bool dry_run)>;

using WebFields = std::map<std::string, std::string>;

// Throws usage naming the field.
WebSubmission read_submission(const WebFields& fields);

std::string login_page(const std::string& message);
// Empty where the caller may submit nowhere. `filled`: what the reader wrote before.
std::string submit_form(const Caller& caller, const std::vector<std::string>& recipes,
                        const std::string& form_key, const WebFields& filled);
std::string steer_form(const Caller& caller, const std::string& form_key);
// What was asked for, what it is expected to cost, and the button that really submits it.
std::string confirm_html(const WebFields& fields, const WebAnswer& answer,
                         const std::string& form_key);

// cancel, requeue, hold or release; throws usage for anything else.
Job steer(const Caller& caller, const std::string& what, const std::string& job);

}  // namespace tutti::control
