#include "tutti/chat/parser.h"

#include <algorithm>
#include <initializer_list>

#include "tutti/chat/expression_parser.h"
#include "tutti/chat/token_stream.h"

namespace tutti::chat {
namespace {

class StatementParser {
 public:
  StatementParser(std::string_view source, const std::string& origin)
      : tokens_(read_tokens(source, origin), origin), expressions_(tokens_) {}

  Block parse() {
    Block block = parse_block({});
    if (!tokens_.is(TokenKind::end)) tokens_.unexpected("the end");
    return block;
  }

 private:
  // Up to a tag with one of these names, after its '{%', or to the end if there are none.
  Block parse_block(std::initializer_list<std::string_view> ends) {
    if (++depth_ > kMostSyntaxDepth / 2) {
      tokens_.refuse(tokens_.line(), "statements are nested more than {} deep",
                     kMostSyntaxDepth / 2);
    }
    Block block;
    for (;;) {
      const int line = tokens_.line();
      if (tokens_.is(TokenKind::data)) {
        Statement text{StatementKind::text, line};
        text.text = Text(tokens_.take().text);
        block.push_back(std::move(text));
      } else if (tokens_.is(TokenKind::print_begin)) {
        tokens_.take();
        Statement print{StatementKind::print, line};
        print.expression = expressions_.parse_tuple();
        tokens_.expect(TokenKind::print_end, "'}}'");
        block.push_back(std::move(print));
      } else if (tokens_.is(TokenKind::block_begin)) {
        tokens_.take();
        if (tokens_.is_name_of(ends)) break;
        block.push_back(parse_statement(line));
      } else {
        if (ends.size() > 0) tokens_.unexpected(fmt::format("'{{% {} %}}'", *(ends.end() - 1)));
        break;
      }
    }
    --depth_;
    return block;
  }

  void end_tag() { tokens_.expect(TokenKind::block_end, "'%}'"); }

  // The statements of a tag; consumes its end tag.
  Block parse_body(std::string_view end) {
    end_tag();
    Block body = parse_block({end});
    tokens_.take();
    end_tag();
    return body;
  }

  Statement parse_statement(int line) {
    if (!tokens_.is(TokenKind::name)) tokens_.unexpected("the name of a tag");
    const std::string name = tokens_.take().text;
    Statement out{StatementKind::text, line};
    if (name == "if") return parse_if(std::move(out));
    if (name == "for") return parse_for(std::move(out));
    if (name == "set") return parse_set(std::move(out));
    if (name == "macro") return parse_macro(std::move(out));
    if (name == "with") return parse_with(std::move(out));
    if (name == "generation") {
      out.kind = StatementKind::generation;
      out.body = parse_body("endgeneration");
      return out;
    }
    if (name == "filter") {
      out.kind = StatementKind::filter_block;
      out.filter = expressions_.parse_block_filters(true);
      out.body = parse_body("endfilter");
      return out;
    }
    if (name == "break" || name == "continue") {
      if (loops_ == 0) tokens_.refuse(line, "'{}' is outside a loop", name);
      out.kind = name == "break" ? StatementKind::leave : StatementKind::next;
      end_tag();
      return out;
    }
    for (const std::string_view known : {"include", "import", "from", "extends", "block", "call",
                                         "autoescape", "trans", "do", "print"}) {
      if (name == known) tokens_.unsupported(line, "the tag '" + name + "'");
    }
    if (name.starts_with("end") || name == "else" || name == "elif") {
      tokens_.refuse(line, "'{{% {} %}}' has no matching tag", name);
    }
    tokens_.refuse(line, "unknown tag '{}'", name);
  }

  Statement parse_if(Statement out) {
    out.kind = StatementKind::condition;
    for (;;) {
      Branch branch;
      branch.condition = expressions_.parse_tuple(false);
      end_tag();
      branch.body = parse_block({"elif", "else", "endif"});
      out.branches.push_back(std::move(branch));
      const std::string next = tokens_.take().text;
      if (next == "elif") continue;
      if (next == "else") {
        out.other = parse_body("endif");
      } else {
        end_tag();
      }
      return out;
    }
  }

  Statement parse_for(Statement out) {
    out.kind = StatementKind::loop;
    out.target = parse_target({"in"}, false);
    if (!tokens_.skip_name("in")) tokens_.unexpected("'in'");
    out.expression = expressions_.parse_tuple(false, {"recursive"});
    if (tokens_.skip_name("if")) out.filter = expressions_.parse();
    if (tokens_.is_name("recursive")) tokens_.unsupported(out.line, "a recursive loop");
    end_tag();
    ++loops_;
    out.body = parse_block({"else", "endfor"});
    --loops_;
    if (tokens_.take().text == "else") {
      out.other = parse_body("endfor");
    } else {
      end_tag();
    }
    return out;
  }

  Statement parse_set(Statement out) {
    out.target = parse_target({}, true);
    if (tokens_.skip_symbol("=")) {
      out.kind = StatementKind::set;
      out.expression = expressions_.parse_tuple();
      end_tag();
      return out;
    }
    out.kind = StatementKind::set_block;
    if (out.target.is_tuple) tokens_.unexpected("'='");
    out.filter = expressions_.parse_block_filters(false);
    out.body = parse_body("endset");
    return out;
  }

  Statement parse_macro(Statement out) {
    out.kind = StatementKind::macro;
    out.name = tokens_.expect_name();
    tokens_.expect_symbol("(");
    while (!tokens_.is_symbol(")")) {
      if (!out.parameters.empty()) tokens_.expect_symbol(",");
      Parameter parameter{tokens_.expect_name(), nullptr};
      if (tokens_.skip_symbol("=")) {
        parameter.fallback = expressions_.parse();
      } else if (!out.parameters.empty() && out.parameters.back().fallback) {
        tokens_.refuse(
            out.line,
            "the parameter '{}' of '{}' needs a default, because the previous one has one",
            parameter.name, out.name);
      }
      out.parameters.push_back(std::move(parameter));
    }
    tokens_.expect_symbol(")");
    const int loops = std::exchange(loops_, 0);
    out.body = parse_body("endmacro");
    loops_ = loops;
    return out;
  }

  Statement parse_with(Statement out) {
    out.kind = StatementKind::with;
    while (!tokens_.is(TokenKind::block_end)) {
      if (!out.assignments.empty()) tokens_.expect_symbol(",");
      Target target = parse_one_target(false);
      tokens_.expect_symbol("=");
      out.assignments.emplace_back(std::move(target), expressions_.parse());
    }
    out.body = parse_body("endwith");
    return out;
  }

  Target parse_one_target(bool attributes) {
    Target target;
    if (tokens_.skip_symbol("(")) {
      if (++depth_ > kMostSyntaxDepth / 2) tokens_.unexpected("fewer parentheses");
      target = parse_target({}, attributes);
      --depth_;
      tokens_.expect_symbol(")");
      return target;
    }
    target.name = tokens_.expect_name();
    for (const std::string_view fixed : {"true", "false", "none", "True", "False", "None"}) {
      if (target.name == fixed) tokens_.refuse(tokens_.line(), "cannot assign to '{}'", fixed);
    }
    if (attributes && tokens_.skip_symbol(".")) target.attribute = tokens_.expect_name();
    return target;
  }

  Target parse_target(std::initializer_list<std::string_view> ends, bool attributes) {
    Target first = parse_one_target(attributes);
    if (!tokens_.is_symbol(",")) return first;
    Target tuple;
    tuple.is_tuple = true;
    tuple.parts.push_back(std::move(first));
    while (tokens_.skip_symbol(",")) {
      if (tokens_.is_name_of(ends) || tokens_.is_symbol("=") || tokens_.is_symbol(")")) break;
      tuple.parts.push_back(parse_one_target(attributes));
    }
    return tuple;
  }

  TokenStream tokens_;
  ExpressionParser expressions_;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

Block parse_template(std::string_view source, const std::string& origin) {
  return StatementParser(source, origin).parse();
}

}  // namespace tutti::chat
