"""The page of `tutti plan explain` in a real browser: every pipeline stage has its lane, and the
passes are drawn where the prediction says, in the colours of the legend, on phone and desk, light
and dark."""

import json
import os
import subprocess
import sys
import tempfile

import page_test  # skips where NumPy or Chromium are missing
import browser
import small_run
from page_test import DESK, PHONE, css_colour, near

KINDS = ["forward", "backward", "weight_gradient", "wait", "communicate", "update"]


def explain(path, *arguments):
    out = subprocess.run(
        [small_run.TUTTI, "plan", "explain", "gpt2-124m", "--system", "dgx-h100", "--gpus", "16",
         "parallel.pp=4", "parallel.zero=1", "batch.global=64", "batch.micro=4",
         "batch.sequence=1024", "--html", path, *arguments],
        check=True, capture_output=True, text=True).stdout
    return out


def check_lanes(page, timeline, least_width):
    colours = {kind: css_colour(page, f"--c{i}") for i, kind in enumerate(KINDS)}
    colours["wait"] = css_colour(page, "--grid")
    assert page.value("document.querySelectorAll('#step .lane .bed').length") == 4
    legend = page.value("document.querySelector('#step .legend').textContent")
    for word in ("forward", "backward", "weight gradient", "wait", "gather and reduce", "update"):
        assert word in legend, (word, legend)
    seen = {kind: 0 for kind in KINDS}
    for rank in timeline["ranks"]:
        image = page.screenshot(
            page.box(f"#step .lane:nth-child({rank['stage'] + 1}) .bed"))
        height, width = image.shape[:2]
        for kind, _, _, begin, end in rank["spans"]:
            if (end - begin) / timeline["seconds"] * width < least_width:
                continue
            x = (begin + end) / 2 / timeline["seconds"] * width
            assert near(image, colours[kind], x, height / 2, 1), \
                f"stage {rank['stage']}: no {kind} at {x:.0f} of {width}"
            seen[kind] += 1
    return seen


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(os.path.realpath(folder), "step.html")
        text = explain(path)
        assert all(len(line) <= 100 for line in text.split("\n\n")[1].splitlines()), text
        # Of a model whose products, not the host, take the time.
        result = json.loads(explain(path, "model.preset=llama3.1-8b", "--json",
                                    "--what-if", "system=dgx-b200,precision=fp4"))
        rows = {row["what_if"]: row for row in result["what_if"]}
        assert rows["system=dgx-b200,precision=fp4"]["step_seconds"] < result["step_seconds"]
        assert "H100 has no such products" in rows["fp4"]["impossible"]
        result = json.loads(explain(path, "--json"))
        timeline = result["timeline"]
        with browser.Browser() as page:
            for size, dark in ((DESK, False), (DESK, True), (PHONE, False), (PHONE, True)):
                page.open(path, *size, dark=dark)
                seen = check_lanes(page, timeline, 8)
                if size == DESK:
                    # 4 stages of 4 micro-batches.
                    assert seen["forward"] >= 12 and seen["backward"] >= 12, seen
                    assert seen["weight_gradient"] >= 12 and seen["wait"] >= 4, seen
                assert page.value("document.querySelectorAll('#what-if tr').length") == len(
                    result["what_if"]) + 1
                page_test.check_quiet(page, path)
                if len(sys.argv) > 1:  # a folder for pictures to look at
                    name = f"{'phone' if size == PHONE else 'desk'}-{'dark' if dark else 'light'}"
                    page.screenshot(raw=True, save=os.path.join(sys.argv[1], name + ".png"))
    print(f"{len(timeline['ranks'])} stages are drawn where the prediction says")


if __name__ == "__main__":
    main()
