// A small plane for tests: a database in memory with an admin, two projects and people in them.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tutti/base/error.h"
#include "tutti/control/jobs/requests.h"
#include "tutti/control/people/administration.h"
#include "tutti/control/store/schema.h"

namespace tutti::control {

inline constexpr int64_t kNoon = 1'769'860'800'000;  // 2026-01-31T12:00:00Z

// Whether `call` throws Error of that kind.
template <typename Call>
testing::AssertionResult throws(ErrorKind kind, Call call, const std::string& text = {}) {
  try {
    call();
  } catch (const Error& error) {
    if (error.kind() != kind) {
      return testing::AssertionFailure() << error_kind_name(error.kind()) << ": " << error.what();
    }
    if (std::string(error.what()).find(text) == std::string::npos) {
      return testing::AssertionFailure() << "another text: " << error.what();
    }
    return testing::AssertionSuccess() << error.what();
  }
  return testing::AssertionFailure() << "did not throw";
}

// root is admin; ada submits to vision, viv views it, dora deploys there, olaf operates it; bob
// submits to speech.
// Two nodes of 4 cores at 3.60 USD per hour and 1 kW.
struct SmallControlPlane {
  Database database{":memory:"};
  SmallControlPlane() {
    prepare_schema(database);
    Site site;
    site.micro_usd_per_node_hour = 3'600'000;
    site.milliwatts_per_node = 1'000'000;
    site.pue = 1.5;
    site.micro_kg_per_kwh = 400'000;
    site.micro_liters_per_kwh = 2'000'000;
    create_control_plane(as("root"), {"n1", 4, 0, true, false, ""}, site);
    define_node(as("root"), {"n2", 4, 0, true, false, ""});
    for (const char* user : {"ada", "bob", "viv", "olaf", "dora"}) create_user(as("root"), user);
    for (const char* name : {"vision", "speech"}) {
      Project project;
      project.name = name;
      define_project(as("root"), project);
    }
    grant(as("root"), {"ada", "vision", Role::submitter});
    grant(as("root"), {"viv", "vision", Role::viewer});
    grant(as("root"), {"dora", "vision", Role::deployer});
    grant(as("root"), {"olaf", "vision", Role::operator_});
    grant(as("root"), {"bob", "speech", Role::submitter});
  }
  Caller as(const std::string& user, int64_t now_ms = kNoon) { return {database, user, now_ms}; }

  static JobRequest request(const std::string& project = "vision") {
    JobRequest request;
    request.name = "demo";
    request.project = project;
    request.command = {"train", "demo"};
    return request;
  }
  static JobRequest deployment(const std::string& project = "vision") {
    JobRequest request = SmallControlPlane::request(project);
    request.name = "chat";
    request.command = {"endpoint", "chat=/runs/a/checkpoints/step-00000007"};
    request.deployment = Deployment{
        "chat", "/runs/a/checkpoints/step-00000007", "aa11", 7, "127.0.0.1", 8000, HealthRule{}};
    return request;
  }
};

}  // namespace tutti::control
