#include "tutti/report/axis.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace tutti::report {
namespace {

std::vector<std::string> labels(const std::vector<Tick>& ticks) {
  std::vector<std::string> out;
  for (const Tick& tick : ticks) out.push_back(tick.label);
  return out;
}
using Labels = std::vector<std::string>;

TEST(Axis, HoldsAllValuesWithAMargin) {
  const Axis axis = make_axis(Scale::linear, {2, 4, std::nan(""), 3}, false);
  EXPECT_LT(axis.low, 2);
  EXPECT_GT(axis.high, 4);
  EXPECT_GT(axis.position(2), 0);
  EXPECT_DOUBLE_EQ(axis.position(axis.low), 0);
  EXPECT_DOUBLE_EQ(axis.position(axis.high), 1);
  EXPECT_EQ(make_axis(Scale::linear, {2, 4}, true).low, 0);
}

TEST(Axis, LogarithmsTakePositiveValuesOnly) {
  const Axis axis = make_axis(Scale::logarithmic, {0, -3, 1, 100}, false);
  EXPECT_GT(axis.low, 0.5);
  EXPECT_NEAR(axis.position(10), 0.5, 1e-12);
}

TEST(Axis, DegenerateValuesGiveAnAxis) {
  const double infinity = std::numeric_limits<double>::infinity();
  for (const std::vector<double>& values : {std::vector<double>{},
                                            {5},
                                            {0},
                                            {-2, -2},
                                            {infinity},
                                            {1e300},
                                            {1e-300},
                                            {1e-310},
                                            {1e-310, 1e300},
                                            {1e-310, 1e-309},
                                            {-1.7e308, 1.7e308},
                                            {4.9e-324},
                                            {1.7e308}}) {
    for (const Scale scale : {Scale::linear, Scale::logarithmic}) {
      const Axis axis = make_axis(scale, values, false);
      for (const double value : values) {
        EXPECT_TRUE(!std::isfinite(value) || value <= 0 || std::isfinite(axis.position(value)));
      }
      EXPECT_LT(axis.low, axis.high);
      EXPECT_TRUE(std::isfinite(axis.low) && std::isfinite(axis.high));
      EXPECT_LT(make_ticks(axis, Quantity::number, 6).size(), 20U);
    }
  }
}

TEST(Axis, TicksAreRoundNumbers) {
  const auto linear = [](double low, double high, Quantity quantity, int most) {
    return labels(make_ticks({Scale::linear, low, high}, quantity, most));
  };
  EXPECT_EQ(linear(0, 5.2, Quantity::loss, 6), (Labels{"0", "1", "2", "3", "4", "5"}));
  EXPECT_EQ(linear(-0.1, 0.9, Quantity::number, 4), (Labels{"0", "0.25", "0.50", "0.75"}));
  EXPECT_EQ(linear(1, 1200, Quantity::integer, 6),
            (Labels{"200", "400", "600", "800", "1,000", "1,200"}));
  EXPECT_EQ(linear(0, 2.1e6, Quantity::integer, 4), (Labels{"0", "1M", "2M"}));
  EXPECT_EQ(linear(0, 0.002, Quantity::number, 4),
            (Labels{"0", "0.0005", "0.0010", "0.0015", "0.0020"}));
  EXPECT_EQ(linear(0, 4e-5, Quantity::number, 4), (Labels{"0", "1e-5", "2e-5", "3e-5", "4e-5"}));
  EXPECT_EQ(linear(0, 7200, Quantity::seconds, 4), (Labels{"0", "30 min", "1 h", "1:30 h", "2 h"}));
  EXPECT_EQ(linear(0.06, 0.1, Quantity::seconds, 4),
            (Labels{"60 ms", "70 ms", "80 ms", "90 ms", "100 ms"}));
  EXPECT_EQ(linear(0, 0.65, Quantity::ratio, 4), (Labels{"0%", "20%", "40%", "60%"}));
  EXPECT_EQ(labels(make_ticks({Scale::logarithmic, 0.9, 120}, Quantity::number, 9)),
            (Labels{"1", "2", "5", "10", "20", "50", "100"}));
}

TEST(Format, NumbersAsPeopleReadThem) {
  EXPECT_EQ(format_integer(0), "0");
  EXPECT_EQ(format_integer(-1234567), "-1,234,567");
  EXPECT_EQ(format_integer(-123), "-123");
  EXPECT_EQ(format_value(Quantity::loss, 1.49871), "1.4987");
  EXPECT_EQ(format_value(Quantity::ratio, 0.6128), "61.3%");
  EXPECT_EQ(format_value(Quantity::seconds, 0.06241), "62.4 ms");
  EXPECT_EQ(format_value(Quantity::seconds, 0), "0 s");
  EXPECT_EQ(format_value(Quantity::rate, 32505.97), "32,506");
  EXPECT_EQ(format_value(Quantity::rate, 1234567), "1.235 M");
  EXPECT_EQ(format_value(Quantity::number, std::nan("")), "–");
  EXPECT_EQ(format_flops(1.00486e12), "1.005 TFLOP/s");
  EXPECT_EQ(format_flops(664.6e9), "664.6 GFLOP/s");
}

}  // namespace
}  // namespace tutti::report
