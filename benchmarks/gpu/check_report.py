"""What the check of a GPU has found: a report to read, the same as JSON, a table for the screen."""

import json
import os
import time

from check_bars import FAILED, NOT_RUN, PASSED, UNCHECKED, bar_table, summary_of, verdict_of

MOST_LINES = 60  # of the table
MOST_COLUMNS = 150
STATUS = {FAILED: 1, NOT_RUN: 4, UNCHECKED: 3}  # the first that occurs


class Report:
    """Rewritten after each part, so that finished parts are kept."""

    def __init__(self, path, profile, budget_seconds):
        self.path, self.profile, self.budget_seconds = path, profile, budget_seconds
        self.begin = self.part_begin = time.monotonic()
        self.results, self.facts, self.left_out = [], {}, []

    def begin_part(self):
        self.part_begin = time.monotonic()

    def add(self, title, text, verdict, said="", bars=()):
        """`said`: the part in one line."""
        now = time.monotonic()
        self.results.append({"title": title, "verdict": verdict, "said": said,
                             "seconds": round(now - self.part_begin, 1), "text": text.rstrip(),
                             "bars": [{"name": bar.name, "value": bar.value, "bound": bar.bound,
                                       "at_least": bar.at_least, "reason": bar.reason,
                                       "verdict": bar.verdict()} for bar in bars],
                             "failed_bars": [bar.line() for bar in bars if not bar.met()]})
        self.part_begin = now
        print(f"{title}: {verdict}", flush=True)
        self.write()

    def add_bars(self, title, bars, text=""):
        self.add(title, bar_table(bars) + (f"\n\n{text}" if text else ""),
                 verdict_of(bar.verdict() for bar in bars), summary_of(bars), bars)

    def leave_out(self, what):
        """What this machine cannot run, for good: it counts neither way."""
        if what not in self.left_out:
            self.left_out.append(what)

    def named(self, verdict):
        return [one["title"] for one in self.results if one["verdict"] == verdict]

    def status(self):
        """0: all that was asked for holds; 1: something failed; 4: nothing did, but the time was too
        short for all; 3: nothing did, but something could not be checked."""
        return next((status for verdict, status in STATUS.items() if self.named(verdict)),
                    0 if self.results else 3)

    def table(self):
        """At most MOST_LINES lines."""
        spent = time.monotonic() - self.begin
        lines = [f"GPU check, profile {self.profile}, {self.facts.get('gpu', 'no GPU')}, "
                 f"{spent:.0f} of {self.budget_seconds:.0f} s"]
        rows = [(one["verdict"], f"{one['seconds']:.0f} s", one["title"], one["said"])
                for one in self.results]
        widths = [max((len(row[i]) for row in rows), default=0) for i in range(3)]
        lines += [f"{row[0]:<{widths[0]}}  {row[1]:>{widths[1]}}  {row[2]:<{widths[2]}}  {row[3]}"
                  for row in rows]
        lines += [f"left out: {what}" for what in self.left_out]
        for one in self.results:
            if len(one["failed_bars"]) > 1:
                lines += [f"  {one['title']}: {line}" for line in one["failed_bars"]]
        counts = ", ".join(f"{len(self.named(verdict))} {verdict}"
                           for verdict in (PASSED, FAILED, UNCHECKED, NOT_RUN)
                           if self.named(verdict))
        last = [f"{counts}: exit status {self.status()}", f"{self.path} and {self.json_path()}"]
        most = MOST_LINES - len(last)
        if len(lines) > most:
            lines[most - 1:] = [f"... and {len(lines) - most + 1} lines more in the report"]
        return "\n".join([line.rstrip()[:MOST_COLUMNS] for line in lines] + last)

    def json_path(self):
        return self.path.with_suffix(".json")

    def write(self):
        parts = [f"## {one['title']}: {one['verdict']}\n\n{one['text']}\n" for one in self.results]
        head = f"# GPU report, {time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}\n"
        table = f"```\n{self.table()}\n```\n"
        # Long lists are in the JSON alone.
        replace(self.path, "\n".join([head, table, *parts]))
        replace(self.json_path(), json.dumps(
            {"profile": self.profile, "budget_seconds": self.budget_seconds,
             "seconds": round(time.monotonic() - self.begin, 1), "status": self.status(),
             "left_out": self.left_out,
             "parts": [{key: value for key, value in one.items() if key != "failed_bars"}
                       for one in self.results],
             "facts": self.facts}, indent=1) + "\n")


def replace(path, text):
    temporary = path.with_name(path.name + ".part")
    temporary.write_text(text)
    os.replace(temporary, path)
