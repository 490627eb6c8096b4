#!/usr/bin/env python3
"""Drawn templates through our evaluator and through jinja2 as transformers sets it up.

  fuzz_test.py RENDER [COUNT [SEED [verbose]]]

Where jinja2 writes a text, ours must be equal; what ours refuses as not supported is not compared.
Damaged templates must not end the program. Skipped (77) without jinja2 3.1.6.
"""
import datetime
import json
import os
import random
import subprocess
import sys
import warnings

try:
    import jinja2
    import jinja2.ext
    from jinja2.sandbox import ImmutableSandboxedEnvironment
except ImportError:
    print("skipped: no jinja2")
    sys.exit(77)

VARIABLES = {
    "messages": [{"role": "system", "content": "Be brief."},
                 {"role": "user", "content": "H\u00e9 <|im_end|>\n", "extra": None},
                 {"role": "assistant", "content": "<think>\na\n</think>\n\nb",
                  "tool_calls": [{"name": "f", "arguments": {"a": 1, "b": [1, 2.5, None, True, "x\"y"]}}]},
                 {"role": "user", "content": [{"type": "text", "text": "T"}, {"type": "image"}]}],
    "n": 7, "f": 2.5, "s": "Hello World-foo (bar) stra\u00dfe", "l": [3, 1, 2], "e": "", "z": [],
    "d": {"b": 1, "a": {"x": [1, 2]}, "C": None}, "t": True, "nothing": None,
}


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                        extensions=[jinja2.ext.loopcontrols])

    def tojson(x, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(x, ensure_ascii=ensure_ascii, indent=indent, separators=separators,
                          sort_keys=sort_keys)

    def refuse(message):
        raise jinja2.exceptions.TemplateError(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = refuse
    env.globals["strftime_now"] = lambda form: datetime.datetime(2026, 1, 1).strftime(form)
    return env


class Drawer:
    """Templates drawn from the part of the grammar that ours has."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.names = ["messages", "n", "f", "s", "l", "e", "z", "d", "t", "nothing", "missing", "x", "y",
                      "ns", "loop", "m"]

    def pick(self, *options):
        return self.random.choice(options)

    def literal(self):
        return self.pick("0", "1", "-1", "2", "3", "7", "2.5", "1e3", "''", "'a'", "'o'", "'role'", "' '",
                         "'user'", "'\\n'", "'</think>'", "true", "false", "none", "[]", "[1, 2]", "{}",
                         "{'a': 1}", "(1, 2)", "'\u00e9'", '"it\'s"', "100")

    def text(self, depth):
        if depth <= 0 or self.random.random() < 0.2:
            return self.pick("s", "messages[0].role", "messages[2].content", "''", "'a'", "' o '", "e", "'l\\no'",
                             "'\u00e9 </think> x'", "missing")
        t, n = (lambda: self.text(depth - 1)), (lambda: self.number(depth - 1))
        return self.random.choice([
            lambda: f"({t()} + {t()})", lambda: f"({t()} ~ {self.expression(depth - 1)})",
            lambda: f"{t()}[{self.pick('', n())}:{self.pick('', n())}]", lambda: f"{t()}[::-1]",
            lambda: f"({t()} * 2)", self.method(t), self.method(t), self.filtered(t),
            lambda: f"({self.items(depth - 1)} | join({self.pick('', t())}))",
            lambda: f"({self.expression(depth - 1)} | {self.pick('string', 'tojson', 'tojson(indent=1)')})",
            lambda: f"({t()} if {self.truth(depth - 1)} else {t()})"])()

    def number(self, depth):
        if depth <= 0 or self.random.random() < 0.3:
            return self.pick("0", "1", "-1", "2", "3", "7", "n", "f", "l[0]", "t", "loop.index0")
        n = lambda: self.number(depth - 1)
        return self.random.choice([
            lambda: f"({n()} {self.pick('+', '-', '*', '//', '%', '/')} {n()})", lambda: f"-{n()}",
            lambda: f"({self.items(depth - 1)} | {self.pick('length', 'count', 'first', 'last')})",
            lambda: f"({self.text(depth - 1)} | length)", lambda: f"({self.text(depth - 1)} | int)",
            lambda: f"({n()} | {self.pick('abs', 'int', 'float', 'round', 'round(1)')})",
            lambda: f"({n()} if {self.truth(depth - 1)} else {n()})"])()

    def items(self, depth):
        if depth <= 0 or self.random.random() < 0.3:
            return self.pick("l", "messages", "z", "[1, 'a']", "d", "s.split()", "(1, 2)", "range(3)", "missing",
                             "messages[2].tool_calls", "messages[3].content", "d.items()", "[n, f]")
        i = lambda: self.items(depth - 1)
        return self.random.choice([
            lambda: f"({i()} + {i()})", lambda: f"({i()} | list)", lambda: f"({i()} | list)[::-1]",
            lambda: f"{i()}[{self.pick('', self.number(depth - 1))}:]", self.filtered(i),
            lambda: f"[{self.expression(depth - 1)}, {self.expression(depth - 1)}]",
            lambda: f"{self.text(depth - 1)}.split({self.pick('', repr('o'))})",
            lambda: f"({i()} | {self.pick('map', 'select', 'reject')}({self.pick(*map(repr, ('string', 'none', 'defined', 'length')))}) | list)"])()

    def truth(self, depth):
        e = lambda: self.expression(depth - 1)
        return self.random.choice([
            self.tested(e), lambda: f"({e()} {self.pick('==', '!=')} {e()})", lambda: f"(not {e()})",
            lambda: f"({self.number(depth - 1)} {self.pick('<', '<=', '>', '>=')} {self.number(depth - 1)})",
            lambda: f"({e()} {self.pick('in', 'not in')} {self.items(depth - 1)})",
            lambda: f"({self.text(depth - 1)} {self.pick('in', '==', '<')} {self.text(depth - 1)})",
            lambda: f"({e()} {self.pick('and', 'or')} {e()})"])()

    def expression(self, depth):
        kind = self.random.random()
        if kind < 0.12:
            return self.anything(depth)
        return self.pick(self.text, self.text, self.number, self.items, self.truth)(depth)

    def anything(self, depth):
        if depth <= 0:
            return self.literal()
        e = lambda: self.expression(depth - 1)
        return self.random.choice([
            lambda: self.pick(*self.names),
            lambda: f"{e()}.{self.pick('role', 'content', 'a', 'x', 'tool_calls', 'name', 'first', 'index0')}",
            lambda: f"{e()}[{e()}]",
            lambda: f"({e()} {self.pick('+', '-', '*', '/', '//', '%', '~', '**', '<')} {e()})",
            lambda: f"({e()} if {e()})",
            lambda: f"{{'k': {e()}, 'a': {e()}}}",
            self.filtered(e), self.method(e),
            lambda: f"m({e()})",
        ])()

    def filtered(self, e):
        name = self.pick(
            "trim", "upper", "lower", "capitalize", "title", "length", "count", "string", "list", "first",
            "last", "join", "join(', ')", "tojson", "tojson(indent=2)", "tojson(sort_keys=true)", "items",
            "default('q')", "default('q', true)", "replace('o', '0')", "replace('l', 'L', 1)", "int",
            "float", "abs", "round", "sort", "sort(reverse=true)", "reverse", "unique", "sum", "min",
            "max", "dictsort", "indent", "indent(2, true)", "map('string')", "map(attribute='role')",
            "selectattr('role', 'equalto', 'user')", "rejectattr('role', 'eq', 'user')",
            "selectattr('content')", "select('string')", "reject('none')", "select", "map('length')",
            "d(5)", "join('-', attribute='role')", "trim('ao')", "round(1)", "tojson(separators=(',', ':'))")
        return lambda: f"({e()} | {name})"

    def tested(self, e):
        name = self.pick(
            "defined", "undefined", "none", "string", "mapping", "iterable", "sequence", "number", "integer",
            "float", "boolean", "true", "false", "odd", "even", "divisibleby 2", "eq 1", "ne 'a'", "in [1, 'a']",
            "callable", "lower", "upper", "sameas none", "gt 1", "not none", "not defined", "not string")
        return lambda: f"({e()} is {name})"

    def method(self, e):
        name = self.pick(
            "strip()", "lstrip('H')", "rstrip()", "split()", "split('o')", "split(' ', 1)", "rsplit('o', 1)",
            "startswith('H')", "endswith('e')", "upper()", "lower()", "title()", "capitalize()",
            "replace('o', '')", "find('o')", "count('o')", "items()", "keys()", "values()", "get('a')",
            "get('q', 4)", "index(1)", "isdigit()", "isalpha()", "join(['a', 'b'])", "splitlines()",
            "partition('o')", "removeprefix('He')", "append(1)", "copy()", "isspace()", "rfind('o')")
        return lambda: f"{e()}.{name}"

    def space(self):
        return self.pick("", "", "", " ", "\n", "  \n", "\n  ", "text", "a\n\nb", "\t", "\u00a0\n")

    def tag(self, body):
        return "{%" + self.pick("", "", "-", "+") + " " + body + " " + self.pick("", "", "-", "+") + "%}"

    def block(self, depth):
        return "".join(self.space() + self.statement(depth) for _ in range(self.random.randint(1, 3))) + self.space()

    def statement(self, depth):
        if depth <= 0 or self.random.random() < 0.35:
            return "{{" + self.pick("", "", "-") + " " + self.expression(2) + " " + self.pick("", "", "-") + "}}"
        e = lambda: self.expression(2)
        b = lambda: self.block(depth - 1)
        return self.random.choice([
            lambda: self.tag(f"if {e()}") + b() + self.pick("", self.tag(f"elif {e()}") + b())
            + self.pick("", self.tag("else") + b()) + self.tag("endif"),
            lambda: self.tag(f"for {self.pick('x', 'y')} in {self.pick('l', 'messages', 'd', e())}"
                             + self.pick("", "", f" if {e()}")) + b()
            + self.pick("", self.tag("else") + b()) + self.tag("endfor"),
            lambda: self.tag(f"for x, y in {self.pick('d.items()', 'd | items', e())}") + b() + self.tag("endfor"),
            lambda: self.tag(f"set {self.pick('x', 'y')} = {e()}"),
            lambda: self.tag("set ns = namespace(a=1)") + self.tag(f"set ns.a = {e()}") + "{{ ns.a }}",
            lambda: self.tag(f"set {self.pick('x', 'y')}{self.pick('', ' | trim', ' | upper')}") + b() + self.tag("endset"),
            lambda: self.tag(f"macro m(x{self.pick('', '=2')}, q='z')") + b() + self.tag("endmacro"),
            lambda: self.tag(f"with x = {e()}") + b() + self.tag("endwith"),
            lambda: self.tag(f"filter {self.pick('upper', 'trim', 'replace(1, 2)')}") + b() + self.tag("endfilter"),
            lambda: "{#" + self.pick("", "-") + self.pick("c", " a\n b ", "") + self.pick("", "-", "+") + "#}",
            lambda: self.tag("raw") + "{{ x }} {% y" + self.space() + self.tag("endraw"),
            lambda: self.tag("for x in l") + b() + self.tag(f"if x == {self.pick('1', '2')}")
            + self.tag(self.pick("break", "continue")) + self.tag("endif") + b() + self.tag("endfor"),
        ])()


def expected(env, template):
    try:
        return env.from_string(template).render(**VARIABLES)
    except RecursionError:
        return "recursion"
    except Exception:  # of jinja2, or of Python in a template
        return None


def damage(drawer, template):
    data = bytearray(template.encode())
    for _ in range(drawer.random.randint(1, 6)):
        at = drawer.random.randrange(len(data) + 1)
        kind = drawer.random.randrange(4)
        if kind == 0 and at < len(data):
            data[at] = drawer.random.randrange(256)
        elif kind == 1:
            del data[at:at + drawer.random.randint(1, 9)]
        elif kind == 2:
            data[at:at] = drawer.pick(b"{%", b"%}", b"{{", b"}}", b"(", b"[", b"|", b"'", b"-", b"{#", b"(" * 300,
                                      b"not " * 400, b"x.y" * 300, b"{% if x %}" * 200, b"\xff", b"**", b"~")
        else:
            data = data[:at] + data[at // 2:]
    return data.decode("utf-8", "replace")


def unprintable(text):
    # Names of Python objects, whose addresses change.
    return text is not None and any(
        mark in text for mark in (" object at 0x", "<built-in method", "<Macro", "<LoopContext", "<bound method",
                                  "dict_items(", "dict_keys(", "dict_values(", "range(", "<class", "<function", "Namespace", "generator object", "object at"))


def lazy(error):
    # Jinja's filters over lists fail when their result is used, ours when they are applied.
    return error.endswith("has no items") or "'items' requires a dict" in error


def main():
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 2000
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    verbose = len(sys.argv) > 4
    warnings.simplefilter("ignore")  # of Python about templates such as {{ 1[2] }}
    env = environment()
    drawer = Drawer(seed)
    process = subprocess.Popen([sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               encoding="utf-8", env={**os.environ, "TZ": "UTC"})

    def ours(template):
        process.stdin.write(json.dumps({"template": template, "variables": VARIABLES}) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
        if not line:
            print("the program ended at", repr(template))
            sys.exit(1)
        return json.loads(line)

    counts = dict.fromkeys(("equal", "different", "refused by both", "refused by jinja2 alone", "not compared"), 0)
    for _ in range(count):
        template = drawer.block(3)
        want = expected(env, template)
        got = ours(template)
        ours(damage(drawer, template))
        if got.get("kind") == "unsupported" or unprintable(want) or unprintable(got.get("text")) or (
                want == "recursion" or lazy(got.get("error", ""))):
            result = "not compared"
        elif want is None:  # ours need not refuse what means nothing
            result = "refused by jinja2 alone" if "text" in got else "refused by both"
        else:
            result = "equal" if got.get("text") == want else "different"
        counts[result] += 1
        if (result == "different" and counts[result] <= 5) or (verbose and result == "refused by jinja2 alone"):
            print(f"template {template!r}\n  jinja2 {want!r}\n  ours   {got}")
    process.stdin.close()
    process.wait()
    print(", ".join(f"{number} {name}" for name, number in counts.items()))
    sys.exit(1 if counts["different"] or process.returncode else 0)


if __name__ == "__main__":
    main()
