#include "tutti/control/jobs/guarded_keys.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tutti/control/audit/audit.h"
#include "tutti/control/testing/test_support.h"

namespace tutti::control {
namespace {

TEST(Submit, KeysWithEffectsOutsideTheRunNeedOperators) {
  SmallControlPlane plane;
  JobRequest request = SmallControlPlane::request();
  request.guarded_keys = {"telemetry.metrics_address"};
  for (const char* who :
       {"ada", "olaf"}) {  // an operator of one project has no rights over the node
    EXPECT_TRUE(throws(
        ErrorKind::permission, [&] { submit(plane.as(who), request, false); },
        "telemetry.metrics_address: it opens a port of the node"));
  }
  EXPECT_FALSE(audit_lines(plane.database, 1, "").front()["allowed"]);
  submit(plane.as("root"), request, false);
  Site site = read_site(plane.database);
  site.allowed_keys = parse_guarded_keys("telemetry.metrics_address");
  define_site(plane.as("root"), site);
  submit(plane.as("ada"), request, false);
  request.guarded_keys.emplace_back("data.prepare.source");
  EXPECT_TRUE(throws(
      ErrorKind::permission, [&] { submit(plane.as("ada"), request, false); },
      "--allow-keys data.prepare.source"));
  request.guarded_keys = {"checkpoint.store"};
  EXPECT_TRUE(throws(
      ErrorKind::permission, [&] { submit(plane.as("ada"), request, false); },
      "checkpoint.store: it writes to an object store with the keys of the controller's account"));
  EXPECT_TRUE(throws(
      ErrorKind::usage, [] { parse_guarded_keys("train.steps"); }, "is not a guarded key"));
}

TEST(GuardedKeys, AreThoseThatDifferFromATrustedRecipe) {
  const std::string trusted = "telemetry:\n  metrics_port: 0\ndata:\n  prepare:\n    source: a\n";
  EXPECT_TRUE(guarded_changes(trusted + "train:\n  steps: 3\n", trusted).empty());
  EXPECT_EQ(
      guarded_changes("telemetry:\n  metrics_port: 9\ndata:\n  prepare:\n    source: b\n", trusted),
      (std::vector<std::string>{"telemetry.metrics_port", "data.prepare.source"}));
  EXPECT_EQ(guarded_changes(trusted + "checkpoint:\n  store: s3://lab/runs\n", trusted),
            std::vector<std::string>{"checkpoint.store"});
  EXPECT_EQ(guarded_changes("data:\n  cache: /srv\n", "data:\n  train: a\n"),
            std::vector<std::string>{"data.cache"});
}

TEST(Site, SaysAgainWhatAnAdminHasSaid) {
  Site site;
  EXPECT_FALSE(site_from_json(to_json(site), "test").policy.declares_classes);
  site.policy.declares_classes = true;
  site.policy.unlabelled = DataClass::public_;
  site.allowed_keys = {"telemetry.metrics_port"};
  const Site read = site_from_json(to_json(site), "test");
  EXPECT_TRUE(read.policy.declares_classes);
  EXPECT_EQ(read.policy.unlabelled, DataClass::public_);
  EXPECT_EQ(read.allowed_keys, site.allowed_keys);
}

}  // namespace
}  // namespace tutti::control
