// Templates that would run long, grow large or nest deeply.
#include <gtest/gtest.h>

#include <string>

#include "tutti/base/rng.h"
#include "tutti/chat/template.h"

namespace tutti::chat {
namespace {

std::string refused(const std::string& source) {
  try {
    RenderOptions options;
    options.limits.steps = 2'000'000;
    options.limits.text_bytes = 4 << 20;
    options.limits.total_bytes = 64 << 20;
    Template(source, "t").render({}, options);
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}
bool is_refused(const std::string& source, const std::string& with) {
  const std::string message = refused(source);
  EXPECT_NE(message.find(with), std::string::npos) << source.substr(0, 200) << "\n" << message;
  return message.find(with) != std::string::npos;
}
std::string repeated(const std::string& text, int times) {
  std::string out;
  for (int i = 0; i < times; ++i) out += text;
  return out;
}

TEST(Limits, LoopsEnd) {
  const std::string loop = "{% for i in range(99999) %}";
  EXPECT_TRUE(is_refused(loop + loop + "{% endfor %}{% endfor %}", "steps"));
  EXPECT_TRUE(is_refused("{{ range(100001) }}", "accepted: up to 100000"));
  EXPECT_TRUE(is_refused("{{ range(-9223372036854775807, 9223372036854775807) }}", "62 bits"));
  EXPECT_TRUE(
      is_refused("{% set l = range(90000)|list %}" + loop + "{{ 'x' in l }}{% endfor %}", "steps"));
}

TEST(Limits, TextsAndListsStaySmall) {
  EXPECT_TRUE(is_refused("{{ 'a' * 99999999999 }}", "bytes"));
  EXPECT_TRUE(is_refused("{{ [1] * 9999999 }}", "bytes"));
  EXPECT_TRUE(is_refused(
      "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x "
      "%}{% endfor %}",
      "bytes"));
  EXPECT_TRUE(is_refused("{% set s = 'a' * 100000 %}{% for i in range(2000) %}{{ s }}{% endfor %}",
                         "bytes"));
  EXPECT_TRUE(is_refused("{{ ('a' * 9999)|replace('', 'b' * 9999) }}", "bytes"));
  EXPECT_TRUE(is_refused("{{ [1]|tojson(indent=99999999) }}", "accepted: up to 100"));
  EXPECT_TRUE(is_refused("{{ ('a\\n' * 9999)|indent(1000) }}", "bytes"));
  EXPECT_TRUE(is_refused("{% set x = 'a' * 999999 %}{{ [x, x, x, x, x, x, x]|join(x) }}", "bytes"));
}

TEST(Limits, NestingStaysFlat) {
  EXPECT_TRUE(
      is_refused("{% macro m(n) %}{{ m(n) }}{% endmacro %}{{ m(1) }}", "a macro may call itself"));
  EXPECT_TRUE(
      is_refused("{% set ns = namespace(x=[]) %}{% for i in range(500) %}{% set ns.x = [ns.x] %}"
                 "{% endfor %}",
                 "100 deep"));
  EXPECT_TRUE(
      is_refused("{% set ns = namespace(x=0) %}{% for i in range(500) %}{% for y in [ns.x] %}"
                 "{% set ns.x = [loop] %}{% endfor %}{% endfor %}",
                 "100 deep"));
  EXPECT_TRUE(is_refused("{{ " + repeated("(", 5000) + "1" + repeated(")", 5000) + " }}", "deep"));
  EXPECT_TRUE(is_refused("{{ " + repeated("not ", 5000) + "1 }}", "deep"));
  EXPECT_TRUE(is_refused("{{ 1" + repeated("+1", 5000) + " }}", "chain"));
  EXPECT_TRUE(is_refused("{{ x" + repeated(".y", 5000) + " }}", "chain"));
  EXPECT_TRUE(is_refused("{{ x" + repeated("|d", 5000) + " }}", "chain"));
  EXPECT_TRUE(is_refused("{{ 1" + repeated(" if x else 1", 5000) + " }}", "deep"));
  EXPECT_TRUE(is_refused(repeated("{% if x %}", 5000), "deep"));
  EXPECT_TRUE(is_refused("{% set " + repeated("(", 5000) + "x" + repeated(")", 5000) + " = 1 %}",
                         "fewer parentheses"));
}

// Cycles of values are destroyed: a leak is an error of the sanitizer build.
TEST(Limits, CyclesAndLongChainsAreDestroyed) {
  EXPECT_EQ(refused("{% set ns = namespace() %}{% set ns.me = ns %}{% set ns.l = [ns] %}"), "");
  EXPECT_EQ(refused("{% set ns = namespace(p=none) %}{% for i in range(20000) %}"
                    "{% set ns.p = namespace(p=ns.p) %}{% endfor %}"),
            "");
  EXPECT_EQ(
      refused(
          "{% set ns = namespace(m=none) %}{% for i in range(500) %}{% macro m() %}{% endmacro %}"
          "{% set y = ns.m %}{% set ns.m = m %}{% endfor %}{{ ns.m() }}"),
      "");
}

// Any bytes result in a text or an error.
TEST(Limits, DamagedTemplatesAreRefused) {
  const std::string good =
      "{%- macro m(a, b=1) -%}{{ a ~ b }}{%- endmacro -%}{% for x in range(3) if x is odd %}\n"
      "  {% set ns = namespace(i=0) %}{% if x > 1 and 'a' in 'abc' %}{{ m(x, b='é'|upper) }}{% "
      "else %}\n"
      "{{ [1, {'k': (x, 2)}][0:1] | tojson(indent=2) }}{% endif %}{# c #}{% raw %}{{{% endraw %}\n"
      "{% endfor %}{% generation %}{{ 'x y'.split()[::-1] | map('upper') | join(',') }}{% "
      "endgeneration %}";
  EXPECT_EQ(refused(good), "");
  const uint64_t key = stream_key(7, "template");
  uint64_t index = 0;
  const auto below = [&](size_t bound) { return random_u64(key, index++) % bound; };
  int refusals = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = good;
    for (size_t edits = 1 + below(3); edits > 0; --edits) {
      const size_t at = below(text.size());
      switch (below(4)) {
        case 0: text[at] = static_cast<char>(below(128)); break;
        case 1: text.erase(at, 1 + below(8)); break;
        case 2: text.insert(at, good.substr(below(good.size()), below(30))); break;
        default: text.resize(at + 1);
      }
    }
    refusals += refused(text).empty() ? 0 : 1;
  }
  EXPECT_GT(refusals, 1000);
}

}  // namespace
}  // namespace tutti::chat
