// Charts as markup: what must be in it, and that it stays small.
#include "tutti/report/plot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tutti/report/bars.h"
#include "tutti/report/gantt.h"
#include "tutti/report/line_chart.h"

namespace tutti::report {
namespace {

bool has(const std::string& html, const std::string& what) {
  return html.find(what) != std::string::npos;
}
int count(const std::string& html, const std::string& what) {
  int found = 0;
  for (size_t at = html.find(what); at != std::string::npos; at = html.find(what, at + 1)) ++found;
  return found;
}

LineChart chart_of(std::vector<double> y) {
  LineChart chart;
  chart.id = "c";
  chart.title = "Loss <raw>";
  Curve curve;
  curve.name = "train";
  for (size_t i = 0; i < y.size(); ++i) curve.x.push_back(static_cast<double>(i + 1));
  curve.y = std::move(y);
  chart.curves = {curve};
  return chart;
}

TEST(LineChart, DrawsPointsWhereTheyBelong) {
  LineChart chart = chart_of({0, 1, 0});
  chart.from_zero = true;
  const std::string html = draw(chart);
  // The axis is [0, 1.04]: 1 lies at 1 - 1 / 1.04 of the height from the top.
  EXPECT_TRUE(has(html, "d=\"M0 1500L1500 58L3000 1500\"")) << html;
  EXPECT_TRUE(has(html, "<title id=\"c-t\">Loss &lt;raw&gt;</title>"));
  EXPECT_TRUE(has(html, "<desc id=\"c-d\">train from 0 at step 1 to 0 at step 3"));
  EXPECT_TRUE(has(html, "<table>"));
  EXPECT_FALSE(has(html, "data-toggle"));
}

TEST(LineChart, GapsWhereNothingIsFinite) {
  const double infinity = std::numeric_limits<double>::infinity();
  LineChart chart = chart_of({1, std::nan(""), 1, infinity, 0.5, 1});
  const std::string html = draw(chart);
  EXPECT_EQ(count(html.substr(html.find("class=\"line c0\" d=")).substr(0, 90), "M"), 3);
  EXPECT_TRUE(has(draw(chart_of({std::nan("")})), "No values recorded"));
  EXPECT_TRUE(has(draw(chart_of({})), "No values recorded"));
  EXPECT_TRUE(has(draw(chart_of({3})), "<svg"));
}

// Beyond what other functions take for numbers.
TEST(LineChart, TinyAndGiganticValuesAreDrawn) {
  for (const bool log : {false, true}) {
    LineChart chart = chart_of({1e-310, 1, 1.7976931348623157e308, 4.9e-324});
    chart.offers_log = log;
    const std::string html = draw(chart);
    EXPECT_TRUE(has(html, "<svg"));
    EXPECT_FALSE(has(html, "nan") || has(html, "inf\"")) << html;
  }
}

TEST(LineChart, AMillionStepsFit) {
  std::vector<double> y(1000000);
  for (size_t i = 0; i < y.size(); ++i) y[i] = 2 + std::sin(static_cast<double>(i * i % 1000));
  LineChart chart = chart_of(std::move(y));
  chart.curves[0].smoothed = true;
  chart.offers_log = true;
  const std::string html = draw(chart);
  EXPECT_LT(html.size(), 120000U);
  EXPECT_TRUE(has(html, "data-toggle=\"log\"") && has(html, "data-toggle=\"smooth\""));
}

TEST(Histogram, CountsEveryValue) {
  Histogram histogram;
  histogram.id = "h";
  histogram.what = "steps";
  histogram.values = {1, 1, 2, 3, std::nan(""), 100};
  histogram.bins = 2;
  histogram.clip = 3;
  histogram.marks = {{2, "p50"}, {500, "outside"}};
  const std::string html = draw(histogram);
  EXPECT_EQ(count(html, "<rect"), 2);
  EXPECT_TRUE(has(html, "1 of 5 steps are longer than 3"));
  EXPECT_TRUE(has(html, "p50"));
  EXPECT_FALSE(has(html, "outside"));
  histogram.values = {2, 2};
  EXPECT_EQ(count(draw(histogram), "<rect"), 1);
  histogram.values.clear();
  EXPECT_TRUE(has(draw(histogram), "No values recorded"));
}

TEST(Bars, LargestFirstWithItsShare) {
  Bars bars;
  bars.id = "b";
  bars.bars = {{"small", 1024, 0}, {"large", 3072, 1}};
  const std::string html = draw(bars);
  EXPECT_LT(html.find("large"), html.find("small"));
  EXPECT_TRUE(has(html, "width:33.33%") && has(html, "75%") && has(html, "3.00 KiB"));
}

TEST(Gantt, LanesOverACommonTime) {
  Gantt gantt;
  gantt.id = "g";
  gantt.title = "Run";
  gantt.lanes = {{"train", {{100, 150, "a"}, {150, 200, "b"}}, 0}, {"eval", {{125, 130, "e"}}, 1}};
  const std::string html = draw(gantt);
  EXPECT_EQ(count(html, "<rect"), 3);
  EXPECT_TRUE(has(html, "x=\"1500\" y=\"150\" width=\"1500\"")) << html;
  EXPECT_TRUE(has(html, "x=\"750\" y=\"150\" width=\"150\""));
  // Thousands of short spans are drawn as few.
  for (int i = 0; i < 20000; ++i) {
    gantt.lanes[1].spans.push_back({100 + i * 0.005, 100 + i * 0.005 + 0.004, "s"});
  }
  EXPECT_LT(draw(gantt).size(), 100000U);
  EXPECT_TRUE(has(draw(Gantt{"g", "t", "", {}, {}}), "No times recorded"));
}

}  // namespace
}  // namespace tutti::report
