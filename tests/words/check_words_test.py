"""tools/check_words: the sources hold no retired word, and each way of planting one is found."""

import os
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(os.environ["TUTTI_SOURCE_DIR"])
TOOL = SOURCE / "tools" / "check_words"

GLOSSARY = """# Glossary

| Retired | Write instead | Allowed |
|---|---|---|
| `old word`, `OldWord\\w*` | new word | `an old word of English` |
| `(?<!in_)spot|spots` | slot | |

| Not checked | Why |
|---|---|
| `history.md`, `later/` | revised later |
"""


def run(*arguments):
    done = subprocess.run([TOOL, *map(str, arguments)], stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def check(files, glossary=GLOSSARY, arguments=()):
    with tempfile.TemporaryDirectory() as folder:
        for name, text in {"docs/glossary.md": glossary, **files}.items():
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return run("--root", folder, *arguments)


def finds(name, text, expected):
    status, printed = check({name: text})
    assert status == 1, printed
    assert expected in printed, (expected, printed)


def accepts(name, text):
    status, printed = check({name: text})
    assert status == 0, printed


def planted():
    finds("a.h", "// An old word.\n", "a.h:1: 'old word': write new word")
    finds("a.md", "One.\n\nOld word at the start.\n", "a.md:3: 'Old word': write new word")
    finds("a.cpp", "// An old\n  // word.\n", "a.cpp:1: 'old word'")
    finds("a.cpp", 'fail("an old "\n     "word");\n', "a.cpp:1: 'old word'")
    finds("a.py", "# An old\n# word.\n", "a.py:1: 'old word'")
    finds("a_test.cpp", "TEST(Words, OldWordIsFound) {}\n", "'OldWordIsFound': write new word")
    finds("tools/mend", "#!/bin/sh\n# spots\n", "tools/mend:2: 'spots': write slot")
    finds("Makefile", "all: # spot\n", "Makefile:1: 'spot'")
    status, printed = check({"a.h": "// spot, spot\n// old word\n"})
    assert status == 1 and printed.count("a.h:1:") == 2 and printed.count("a.h:2:") == 1, printed


def allowed():
    accepts("a.h", "// A new word, in_spot, spotless, oldword.\n")
    accepts("a.h", "// an old word of English\n")
    accepts("a.cpp", "int oldword = 0;  // OLD_WORD\n")
    accepts("data.json", '{"spot": 1}\n')
    accepts("history.md", "The old word.\n")
    accepts("later/a.h", "// The old word.\n")
    status, printed = check({"later/a.h": "// The old word.\n"}, arguments=["--all"])
    assert status == 1 and "later/a.h:1" in printed, printed


def wrong_glossaries():
    status, printed = check({}, glossary="# Glossary\n")
    assert status == 1 and "no table 'Retired" in printed, printed
    status, printed = check({}, glossary=GLOSSARY + "\n| Retired | Write instead | Allowed |\n"
                                                    "|---|---|---|\n| `a(` | b | |\n")
    assert status == 1 and "docs/glossary.md:14: 'a(' is not an expression" in printed, printed
    status, printed = check({}, glossary=GLOSSARY.replace("| slot |", "| |"))
    assert status == 1 and "docs/glossary.md:6: wants `expression`" in printed, printed


def counts():
    status, printed = check({"a.h": "// spot, spots\n"}, arguments=["--count"])
    assert status == 0 and "     2 in    1 files  (?<!in_)spot|spots" in printed, printed


planted()
allowed()
wrong_glossaries()
counts()
print("planted words are found")
code, output = run()  # of this checkout
assert code == 0, output
print(output.strip())
