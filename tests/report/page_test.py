"""The report of a real, short training in a real browser: the curves are where the data says, on a
phone and on a desk, light and dark, with the mouse, the keyboard and without scripts; nothing is
requested, nothing complains. Also the pages of a killed run and of two runs."""

import base64
import hashlib
import json
import math
import os
import re
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: NumPy is not installed")
    sys.exit(77)

import browser
import small_run

if not browser.CHROMIUM:
    print("skipped: Chromium is not installed")
    sys.exit(77)

DESK, PHONE = (1440, 900), (390, 844)
EVIL = "<script>document.title='owned'</script>"


def train(recipe, run, corpus, *overrides):
    subprocess.run(
        [small_run.TUTTI, "train", recipe, "--run", run, "train.steps=300",
         f"data.validation={corpus}", "evaluate.every_steps=50", "evaluate.samples=8",
         "checkpoint.every_steps=100", "schedule.warmup_steps=20", *overrides],
        check=True, capture_output=True)


def tutti_report(*arguments):
    done = subprocess.run([small_run.TUTTI, "report", *arguments, "--json"],
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def smoothed(values):
    """As tutti/report/series.h says."""
    a = 2 / (max(8, len(values) / 50) + 1)
    out, total, weight = [], 0.0, 0.0
    for value in values:
        total, weight = (1 - a) * total + a * value, (1 - a) * weight + a
        out.append(total / weight)
    return out


def css_colour(page, name):
    """The colour of a CSS variable as the browser draws it."""
    text = page.value(
        "(() => { const e = document.createElement('i'); document.body.append(e);"
        f"e.style.color = 'var({name})'; const c = getComputedStyle(e).color; e.remove();"
        "return c; })()")
    return np.array([int(x) for x in re.findall(r"\d+", text)[:3]])


def near(image, colour, x, y, reach):
    """Whether a pixel of nearly this colour lies within `reach` of (x, y)."""
    top, left = max(0, round(y) - reach), max(0, round(x) - reach)
    part = image[top:round(y) + reach + 1, left:round(x) + reach + 1].astype(int)
    return bool((np.abs(part - colour).sum(axis=2) < 60).any())


def check_curve(page, steps, values, colour, log=False, every=24):
    """The curve of these values is drawn where the axes put it, and not a third of the height away.
    Every 24th step, so that no dot of an evaluation lies above."""
    data = json.loads(page.value(
        "document.querySelector('#chart-loss script[type=\"application/json\"]').textContent"))
    x_low, x_high = data["x"]
    low, high = data["log" if log else "lin"]
    assert (x_low, x_high) == (1, 300), data["x"]
    image = page.screenshot(page.box("#chart-loss .area"))
    height, width = image.shape[:2]
    seen = 0
    for step, value in list(zip(steps, values))[every // 2::every]:
        x = (step - x_low) / (x_high - x_low) * width
        share = (math.log(value / low) / math.log(high / low) if log
                 else (value - low) / (high - low))
        y = (1 - share) * height
        assert near(image, colour, x, y, 3), f"no curve at step {step}, pixel {x:.0f} {y:.0f}"
        away = y + height / 3 if y < height / 2 else y - height / 3
        assert not near(image, colour, x, away, 2), f"a curve far from its position at step {step}"
        seen += 1
    return seen


def contrast(a, b):
    def luminance(colour):
        c = colour / 255
        c = np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)
        return c @ [0.2126, 0.7152, 0.0722]
    light, dark = sorted((luminance(a), luminance(b)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def check_contrast(page):
    for ground in ("--card", "--ground"):
        for name in ("--ink", "--soft", "--good", "--bad"):
            ratio = contrast(css_colour(page, name), css_colour(page, ground))
            assert ratio >= 4.5, (name, ground, ratio)
        for number in range(6):
            ratio = contrast(css_colour(page, f"--c{number}"), css_colour(page, ground))
            assert ratio >= 3, (number, ground, ratio)


def check_quiet(page, path):
    assert page.complaints() == [], page.complaints()
    assert page.requests() == ["file://" + path], page.requests()
    wide, screen = page.value("[document.documentElement.scrollWidth, innerWidth]")
    assert wide <= screen, f"{wide} pixels on a screen of {screen}"
    assert page.value("document.title") != "owned"


def check_looks(page, path, steps, losses, evaluations):
    grounds = []
    for size in (DESK, PHONE):
        for dark in (False, True):
            page.open(path, *size, dark=dark)
            check_quiet(page, path)
            check_contrast(page)
            grounds.append(page.screenshot([2, 2, 8, 8])[4, 4].tolist())
            blue, orange = css_colour(page, "--c0"), css_colour(page, "--c1")
            assert check_curve(page, steps, smoothed(losses), blue) >= 10
            at, values = zip(*evaluations)
            assert check_curve(page, at[:-1], values[:-1], orange, every=1) >= 5
    assert grounds[0] == grounds[2] and grounds[1] == grounds[3], grounds
    assert sum(grounds[0]) > 600 and sum(grounds[1]) < 120, grounds
    page.open(path, *DESK, scripts=False)
    # Evaluating from outside still works where the page's own scripts do not.
    assert check_curve(page, steps, smoothed(losses), css_colour(page, "--c0")) >= 10


def check_controls(page, path, steps, losses):
    page.open(path, *DESK)
    blue = css_colour(page, "--c0")
    page.value("document.querySelector('#chart-loss [data-toggle=log]').click()")
    assert check_curve(page, steps, smoothed(losses), blue, log=True) >= 10
    page.value("document.querySelector('#chart-loss [data-toggle=smooth]').click()")
    assert check_curve(page, steps, losses, blue, log=True) >= 10
    assert page.value("document.querySelector('#chart-loss [data-toggle=log]').ariaPressed") == "true"

    # The value under the pointer, and those beside it by the arrow keys.
    page.value("document.querySelector('#chart-loss').scrollIntoView()")
    left, top, width, height = page.box("#chart-loss .area")
    scroll = page.value("scrollY")
    page.call("Input.dispatchMouseEvent", type="mouseMoved", x=left + width * (100 - 1) / 299,
              y=top - scroll + height / 2)
    readout = "document.querySelector('#chart-loss .readout')?.textContent ?? ''"
    text = page.value(readout)
    assert text.startswith("step 100") and f"training {losses[99]:.4f}" in text, text
    page.value("document.querySelector('#chart-loss .area').focus()")
    for key, step in (("Home", 1), ("ArrowRight", 2), ("End", 300), ("ArrowLeft", 299)):
        page.call("Input.dispatchKeyEvent", type="keyDown", key=key)
        text = page.value(readout)
        assert text.startswith(f"step {step}") and f"{losses[step - 1]:.4f}" in text, (key, text)
    page.call("Input.dispatchKeyEvent", type="keyDown", key="Escape")
    assert page.value(readout) == ""

    before = page.value("getComputedStyle(document.body).backgroundColor")
    page.value("document.getElementById('theme').click()")
    assert page.value("getComputedStyle(document.body).backgroundColor") != before
    assert page.complaints() == [], page.complaints()


def check_markup(path):
    with open(path) as file:
        html = file.read()
    script = re.search(r"<script>(.*?)</script>", html, re.S).group(1)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in html, f"page_script_hash() must be sha256-{digest}"
    assert EVIL not in html
    charts = html.count("<figure")
    assert charts >= 7, charts
    assert html.count("<title id=") == html.count("<desc id=") >= charts - 1


def check_killed(page, recipe, folder):
    run = os.path.join(folder, "killed")
    process = small_run.start(recipe, run)
    small_run.wait_for(lambda: len(small_run.losses(run)) > 30, process)
    process.kill()
    process.wait()
    with open(os.path.join(run, "events.jsonl"), "a") as file:
        file.write('{"event":"step_done","st')
    result = tutti_report(run)
    assert result["steps"] >= 30 and result["outcome"] is None, result
    assert result["state"] == "running", result  # its last word is seconds old
    assert any("cut off" in note for note in result["notes"]), result["notes"]
    page.open(result["report"], *PHONE)
    check_quiet(page, result["report"])
    assert "cut off" in page.value("document.querySelector('header').textContent")


def check_comparison(page, folder, first, second):
    path = os.path.join(folder, "both.html")
    result = tutti_report(first, second, "--out", path)
    assert {d["key"]: d["values"] for d in result["differences"]} == {
        "optimizer.learning_rate": ["0.001", "0.003"], "run.owner": [f'"{EVIL}"', '""']}, result
    assert [r["steps"] for r in result["runs"]] == [300, 300]
    for size in (DESK, PHONE):
        page.open(path, *size)
        check_quiet(page, path)
    # The second curve is drawn above the first.
    losses = [loss for _, loss in small_run.losses(second)]
    assert check_curve(page, range(1, 301), smoothed(losses), css_colour(page, "--c1")) >= 10


def main():
    with tempfile.TemporaryDirectory() as folder:
        folder = os.path.realpath(folder)
        recipe = small_run.prepare(folder)
        corpus = os.path.join(folder, "corpus")
        first, second = os.path.join(folder, "first"), os.path.join(folder, "second")
        train(recipe, first, corpus, f"run.owner={EVIL}")
        train(recipe, second, corpus, "optimizer.learning_rate=3e-3")
        path = os.path.join(first, "report.html")
        assert os.path.exists(path), "train leaves a report"
        check_markup(path)

        result = tutti_report(first)
        steps, losses = zip(*small_run.losses(first))
        evaluations = [(e["step"], e["loss"]) for e in small_run.events(first)
                       if e["event"] == "evaluation_done"]
        assert result["report"] == path and result["steps"] == 300, result
        assert result["final_loss"] == losses[-1]
        assert result["validation_loss"] == evaluations[-1][1]
        assert result["best_validation_loss"] == min(loss for _, loss in evaluations)

        with browser.Browser() as page:
            check_looks(page, path, steps, losses, evaluations)
            check_controls(page, path, steps, losses)
            check_killed(page, recipe, folder)
            check_comparison(page, folder, first, second)
            if len(sys.argv) > 1:  # a folder for pictures to look at
                for name, size, dark in (("desk", DESK, False), ("dark", DESK, True),
                                         ("phone", PHONE, False)):
                    page.open(path, *size, dark=dark)
                    page.screenshot(raw=True, save=os.path.join(sys.argv[1], name + ".png"))
                shutil.copy(path, sys.argv[1])
    print(f"the report of {len(steps)} steps is where its data says, on phone and desk")


if __name__ == "__main__":
    main()
