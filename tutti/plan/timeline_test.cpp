#include "tutti/plan/timeline.h"

#include <gtest/gtest.h>

#include <sstream>

#include "tutti/plan/testing/systems.h"

namespace tutti::plan {
namespace {

struct Drawn {
  spec::Recipe recipe;
  StepPrediction step;
  StepTimeline timeline;
};

Drawn draw_step(const std::vector<std::string>& layout) {
  Drawn out;
  out.recipe = recipe_of("llama2-70b", layout);
  const catalog::System& system = shipped().system("dgx-h100");
  const Constants constants = assumed_constants();
  const spec::Profile& profile = spec::find_profile("megatron-te");
  PipelineSimulator simulator;
  Predictor predictor(system, constants, simulator);
  out.step = predictor.step(out.recipe, profile);
  out.timeline = step_timeline(out.recipe, profile, system, constants, out.step, simulator);
  return out;
}

const std::vector<std::string> kTimelineLayout = {"batch.global=64", "batch.micro=1",
                                                  "parallel.tp=4",   "parallel.pp=4",
                                                  "parallel.dp=2",   "parallel.zero=1"};

// Every rank's spans cover the time from 0 to the end of the predicted step without gaps, and its
// passes are those of the schedule.
TEST(Timeline, CoversTheStepThatIsPredicted) {
  const Drawn drawn = draw_step(kTimelineLayout);
  ASSERT_EQ(drawn.timeline.ranks.size(), 4U);
  EXPECT_EQ(drawn.timeline.seconds, drawn.step.step_seconds);
  for (const auto& spans : drawn.timeline.ranks) {
    double at = 0;
    int64_t passes = 0;
    for (const TimelineSpan& span : spans) {
      EXPECT_NEAR(span.begin_seconds, at, 1e-9);
      EXPECT_GT(span.end_seconds, span.begin_seconds);
      at = span.end_seconds;
      passes += span.micro >= 0 ? 1 : 0;
    }
    EXPECT_NEAR(at, drawn.step.step_seconds, 1e-6 * drawn.step.step_seconds);
    EXPECT_EQ(passes, 3 * 32);
  }
}

// The busiest rank waits as long as the split states: bubble, host and stragglers.
TEST(Timeline, WaitsEqualTheBubbleOfTheSplit) {
  const Drawn drawn = draw_step(kTimelineLayout);
  double least = drawn.timeline.seconds;
  for (size_t r = 0; r < 4; ++r) least = std::min(least, drawn.timeline.total(r, Work::wait));
  EXPECT_NEAR(least, drawn.step.split.bubble + drawn.step.split.host,
              0.01 * drawn.step.step_seconds);
  EXPECT_NEAR(drawn.timeline.total(0, Work::update), drawn.step.split.optimizer, 1e-12);
}

TEST(Timeline, TextFitsItsColumnsAndShowsEveryStage) {
  const Drawn drawn = draw_step(kTimelineLayout);
  for (const int columns : {80, 100, 200}) {
    std::istringstream lines(draw_text(drawn.timeline, columns, 32));
    std::string line;
    int stages = 0;
    while (std::getline(lines, line)) {
      EXPECT_LE(line.size(), static_cast<size_t>(columns)) << line;
      stages += line.rfind("stage ", 0) == 0 ? 1 : 0;
    }
    EXPECT_EQ(stages, 4);
  }
  const std::string text = draw_text(drawn.timeline, 100, 32);
  EXPECT_NE(text.find("W weight gradient"), std::string::npos);
  // The last stage starts later than the first: it waits for its input.
  const size_t last = text.find("stage 3");
  EXPECT_LT(text.find('.', last), text.find('F', last));
  EXPECT_NE(draw_text(drawn.timeline, 100, 2).find("2 of 4 stages shown"), std::string::npos);
}

TEST(Timeline, PageHasALanePerStageAndTheLegend) {
  const report::Gantt gantt = draw_page(draw_step(kTimelineLayout).timeline, 64);
  ASSERT_EQ(gantt.lanes.size(), 4U);
  EXPECT_EQ(gantt.legend.size(), static_cast<size_t>(kWorkKinds));
  const std::string html = report::draw(gantt);
  for (const char* part :
       {"stage 3", "rect class=\"c0\"", "rect class=\"c2\"", "weight gradient"}) {
    EXPECT_NE(html.find(part), std::string::npos) << part;
  }
}

TEST(Timeline, JsonListsSpansOfShortSteps) {
  const Drawn drawn = draw_step(kTimelineLayout);
  const Json json = to_json(drawn.timeline);
  EXPECT_EQ(json["ranks"].size(), 4U);
  EXPECT_EQ(json["ranks"][0]["spans"].size(), drawn.timeline.ranks[0].size());
  std::vector<std::string> longer = kTimelineLayout;
  longer[0] = "batch.global=16384";
  EXPECT_TRUE(to_json(draw_step(longer).timeline)["ranks"][0]["spans"].is_null());
}

}  // namespace
}  // namespace tutti::plan
