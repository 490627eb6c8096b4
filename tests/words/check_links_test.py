"""tools/check_links: the pages have no dead link, and each kind of dead link is found."""

import os
import subprocess
import tempfile
from pathlib import Path

SOURCE = Path(os.environ["TUTTI_SOURCE_DIR"])
TOOL = SOURCE / "tools" / "check_links"


def run(root):
    done = subprocess.run([TOOL, "--root", root], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, done.stdout


def check(text):
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "docs").mkdir()
        (root / "docs" / "other.md").write_text("# Other\n\n## What waits, and why?\n\n## Twice\n\n## Twice\n\n"
                                                "```\n# Not a heading\n```\n")
        (root / "page.md").write_text(text)
        return run(root)


def finds(text, expected):
    status, printed = check(text)
    assert status == 1 and expected in printed, (text, printed)


def accepts(text):
    status, printed = check(text)
    assert status == 0, (text, printed)


def main():
    finds("One.\n\n[x](docs/gone.md)\n", "page.md:3: docs/gone.md: no such file")
    finds("[x](docs/other.md#what-waits)\n", "page.md:1: docs/other.md#what-waits: no such heading")
    finds("[x](docs/other.md#not-a-heading)\n", "no such heading")
    finds("[x](docs/other.md#twice-2)\n", "no such heading")
    finds("# Here\n\n[x](#there)\n", "page.md:3: #there: no such heading")
    finds("[over two\nlines](gone.md)\n", "page.md:2: gone.md: no such file")
    accepts("[x](docs/other.md#what-waits-and-why)\n[y](docs/other.md#twice-1)\n[z](docs)\n")
    accepts("## `key` and [text](docs/other.md)\n\n[x](#key-and-text)\n")
    accepts("[x](https://example.org/gone.md#x), `[y](gone.md)`\n\n```\n[z](gone.md)\n```\n")
    status, printed = run(SOURCE)
    assert status == 0, printed
    print(printed.strip())


if __name__ == "__main__":
    main()
