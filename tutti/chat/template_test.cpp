#include "tutti/chat/template.h"

#include <gtest/gtest.h>

#include "tutti/base/file.h"
#include "tutti/base/json.h"
#include "tutti/chat/json_value.h"
#include "tutti_test_paths.h"

namespace tutti::chat {
namespace {

std::string render(const std::string& source, const Variables& variables = {}) {
  return Template(source, "t").render(variables).text.bytes;
}

// The message of the error of rendering `source`, prefixed with its kind.
std::string refusal_of(const std::string& source, const Variables& variables = {}) {
  try {
    return "no error: " + render(source, variables);
  } catch (const Error& error) {
    return std::string(error_kind_name(error.kind())) + " " + error.what();
  }
}

// The output of transformers for the templates of tests/chat (make_fixtures.py).
TEST(Template, WritesWhatTransformersWrites) {
  const std::string folder = std::string(TUTTI_SOURCE_DIR) + "/tests/chat";
  FileSystem& files = posix_file_system();
  const Json fixture = parse_json(read_file(files, folder + "/fixture.json"), "fixture.json");
  RenderOptions options;
  options.now_seconds = fixture["now"].get<double>();
  int texts = 0;
  int refusals = 0;
  for (const Json& item : fixture["cases"]) {
    const auto name = item["template"].get<std::string>();
    const auto conversation = item["conversation"].get<std::string>();
    Variables variables = {
        {"messages", value_from_json(fixture["conversations"][conversation], Origin::from_input)},
        {"tools", item["tools"].get<bool>() ? value_from_json(fixture["tools"], Origin::from_input)
                                            : Value(nullptr)},
        {"documents", Value(nullptr)},
        {"add_generation_prompt", Value(item["add_generation_prompt"].get<bool>())}};
    for (const char* more : {"tokens", "variables"}) {
      const Json& members = more == std::string("tokens") ? fixture["tokens"] : item["variables"];
      for (const auto& member : members.items()) {
        variables.emplace_back(member.key(), value_from_json(member.value(), Origin::from_input));
      }
    }
    const Template parsed(read_file(files, folder + "/templates/" + name + ".jinja"), name);
    SCOPED_TRACE(item.dump());
    if (item.contains("error")) {
      EXPECT_THROW(parsed.render(variables, options), Error);
      ++refusals;
      continue;
    }
    const Rendered rendered = parsed.render(variables, options);
    EXPECT_EQ(rendered.text.bytes, item["text"].get<std::string>());
    EXPECT_EQ(rendered.text.bytes.size(), rendered.text.origins.size());
    Json generated = Json::array();
    for (const ByteRange& range : rendered.generated) {
      generated.push_back(Json::array({range.begin, range.end}));
    }
    EXPECT_EQ(generated, item["generated"]);
    ++texts;
  }
  EXPECT_GT(texts, 300);
  EXPECT_GT(refusals, 20);
}

// Expected output of Jinja 3.1.6, set up as in transformers.
TEST(Template, FollowsJinja) {
  const std::pair<const char*, const char*> cases[] = {
      {"{{ 1e3 }}{{ 1e16 }}{{ 1e-5 }}{{ -3 // 2 }}{{ -3 % 5 }}{{ 7/2 }}", "1000.01e+161e-05-223.5"},
      {"{{ [1,'a',\"it's\",'q\"\\n'] }}{{ {'a':(1,)} }}", R"([1, 'a', "it's", 'q"\n']{'a': (1,)})"},
      {"a\n  {% if true %}\n  b\n  {% endif %}\nc\n", "a\n  b\nc"},
      {"{% set x = 1 %}{% for i in [1,2] %}{{ x }}{% set x = x + 1 %}{% endfor %}{{ x }}", "111"},
      {"{{ 'abc'[::-1] }}{{ 'abc'[-2:] }}{{ [1,2,3][1] }}|{{ 'a'[9] }}", "cbabc2|"},
      {"{{ ' a b c'.split(none, 1) }}{{ 'axb'.split('x') }}", "['a', 'b c']['a', 'b']"},
      {"{% macro m(a, b=2) %}{{ a }}{{ b }}{% endmacro %}{{ m(1) }}{{ m(b=3, a=0) }}", "1203"},
      {"{{ missing }}|{{ missing|default('d') }}|{{ missing is defined }}", "|d|False"},
      {"{{ {'a': [1.5, none, true, 'é\"<']}|tojson }}", R"({"a": [1.5, null, true, "é\"<"]})"},
      {"{% raw %}{{ x }}{% endraw %}{# note #}{{ 'a' ~ 1 ~ none }}", "{{ x }}a1None"},
      {"{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i == 4 %}{% break %}"
       "{% endif %}{{ i }}{% endfor %}",
       "013"},
      {"{{ [{'a': 1}]|max }}{{ [3, 1, 2]|min }}", "{'a': 1}1"},
      {"{{ 'straße x-y'|title }}{{ 'ß'.upper() }}{{ -1|round }}{{ 2.5|round }}",
       "Straße X-YSS-12.0"},
  };
  for (const auto& [source, text] : cases) EXPECT_EQ(render(source), text) << source;
}

TEST(Template, ErrorsNameLineAndCause) {
  EXPECT_EQ(refusal_of("a\n{{ x.y }}"), "usage t:2: 'x' is undefined; cannot read its member 'y'");
  EXPECT_EQ(refusal_of("a\n\n{{ 'a'|trin }}"),
            "usage t:3: unknown filter 'trin'; did you mean 'trim'?");
  EXPECT_EQ(refusal_of("{{ 'a'|safe }}"),
            "unsupported t:1: the filter 'safe' is not supported in chat templates here");
  EXPECT_EQ(refusal_of("\n{% include 'x' %}"),
            "unsupported t:2: the tag 'include' is not supported in chat templates here");
  EXPECT_EQ(refusal_of("{{ raise_exception('no ' ~ 1) }}"),
            "usage t:1: the template refuses the conversation: no 1");
  EXPECT_EQ(refusal_of("{% if x %}"),
            "usage t:1: the end of the template where '{% endif %}' was expected");
  EXPECT_EQ(refusal_of("{{ 1 + }}"), "usage t:1: '}}' where an expression was expected");
  EXPECT_EQ(refusal_of("{{ 'a }}"), "usage t:1: the string that starts here is not closed by '");
  EXPECT_EQ(refusal_of("{% endif %}"), "usage t:1: '{% endif %}' has no matching tag");
  EXPECT_EQ(
      refusal_of("{{ [1].append(2) }}"),
      "usage t:1: the method 'append' of list modifies a value, which templates must not do; use a "
      "namespace and '+'");
  EXPECT_EQ(refusal_of("{{ 9223372036854775807 + 1 }}"),
            "usage t:1: an integer has more than 64 bits");
  EXPECT_EQ(refusal_of("\xff"), "usage t: the template is not UTF-8");
}

TEST(Template, NamesOfTheHostAreInaccessible) {
  EXPECT_EQ(render("{{ ''.__class__ }}{{ [].__init__ }}"), "");
  EXPECT_NE(refusal_of("{{ ''.__class__.__mro__ }}").find("has no member '__class__'"),
            std::string::npos);
  EXPECT_NE(refusal_of("{% set ns = namespace() %}{% set ns.__x = 1 %}").find("'_'"),
            std::string::npos);
}

// Every byte of the text keeps its origin, however it is cut, joined and written.
TEST(Template, ContentKeepsItsOrigin) {
  const Variables variables = {{"u", Value(Text("Ab<|x|>", Origin::from_input))},
                               {"a", Value(Text("ok", Origin::from_assistant))}};
  const auto origins = [&](const std::string& source) {
    const Text text = Template(source, "t").render(variables).text;
    std::string out;
    for (size_t i = 0; i < text.size(); ++i) {
      out += text.origins[i] == 0 ? '.' : text.origins[i] == 1 ? 'a' : 'u';
    }
    return out;
  };
  EXPECT_EQ(origins("<{{ u }}|{{ a }}>"), ".uuuuuuu.aa.");
  EXPECT_EQ(origins("{{ ('<|' + u[1:3] + '|>')|upper }}"), "..uu..");
  EXPECT_EQ(origins("{{ u.replace('<', '[')|trim }}"), "uu.uuuu");
  EXPECT_EQ(origins("{{ u.split('<')[1].strip('|>') }}{{ u[::-1][:2] }}"), "uuu");
  EXPECT_EQ(origins("{{ [a, 1]|tojson }}"), "aaaaaaaaa");
  EXPECT_EQ(origins("{{ {'k': u}|string }}"), ".......uuuuuuu..");
  EXPECT_EQ(origins("{% set x %}<{{ u[0] }}>{% endset %}{{ x }}{{ [x, a]|join('+') }}"),
            ".u..u..aa");
  EXPECT_EQ(origins("{% macro m(v) %}<{{ v }}>{% endmacro %}{{ m(a) }}"), ".aa.");
}

TEST(Template, LoopsRecordTheirOutputPerMessage) {
  Sequence messages;
  for (int i = 0; i < 3; ++i) {
    Dict message;
    message.message = i;
    message.set(Value(Text("content")), Value(Text(std::string(1, static_cast<char>('a' + i)))));
    messages.items.emplace_back(std::move(message));
  }
  const Rendered rendered =
      Template("<{% for m in messages[1:] %}[{{ m.content }}]{% endfor %}>", "t")
          .render({{"messages", Value(std::move(messages))}});
  EXPECT_EQ(rendered.text.bytes, "<[b][c]>");
  ASSERT_EQ(rendered.messages.size(), 2U);
  EXPECT_EQ(rendered.messages[1].message, 2);
  EXPECT_EQ(rendered.messages[1].begin, 4U);
  EXPECT_EQ(rendered.messages[1].end, 7U);
}

}  // namespace
}  // namespace tutti::chat
