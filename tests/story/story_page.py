"""The page of the story: its chapters, what was typed and found, and pictures."""

import html
import os

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; color: #1c2430; background: #fff; }
h1 { font-size: 1.7rem; } h2 { font-size: 1.2rem; margin: 2.2rem 0 0; }
.need { color: #5a6675; font-style: italic; margin: 0 0 .6rem; }
pre { background: #f3f5f8; padding: .6rem .8rem; white-space: pre-wrap; overflow-wrap: anywhere; font-size: .85rem; margin: .4rem 0; }
ul { margin: .4rem 0; } img { max-width: 100%; border: 1px solid #d8dee6; }
table { border-collapse: collapse; } td, th { padding: .25rem .9rem .25rem 0; text-align: right; } td:first-child, th:first-child { text-align: left; }
@media (prefers-color-scheme: dark) { body { color: #e4e8ee; background: #14181e; } pre { background: #1f252d; } .need { color: #9aa6b4; } }
"""


def loss_curve(losses, marks, target):
    """An SVG of (step, loss); `marks` are (step, text) of what happened, `target` a horizontal line."""
    width, height, margin = 760, 260, 45
    steps = [step for step, _ in losses]
    low, high = min(target, min(loss for _, loss in losses)), max(loss for _, loss in losses)
    x = lambda step: margin + (width - 2 * margin) * (step - steps[0]) / max(1, steps[-1] - steps[0])
    y = lambda loss: margin / 2 + (height - 1.5 * margin) * (high - loss) / (high - low)
    points = " ".join(f"{x(step):.1f},{y(loss):.1f}" for step, loss in losses)
    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="loss by step" '
             'font-family="system-ui, sans-serif" font-size="12" fill="currentColor">',
             f'<polyline points="{points}" fill="none" stroke="#2f6fde" stroke-width="1.5"/>',
             f'<line x1="{margin}" x2="{width - margin}" y1="{y(target):.1f}" y2="{y(target):.1f}" '
             'stroke="#2a9d5c" stroke-dasharray="5 4"/>',
             f'<text x="{margin + 6}" y="{y(target) - 5:.1f}">target {target:g}</text>',
             f'<text x="{margin}" y="{height - 6}">step {steps[0]}</text>',
             f'<text x="{width - margin}" y="{height - 6}" text-anchor="end">{steps[-1]}</text>',
             f'<text x="4" y="{y(high) + 4:.1f}">{high:.2f}</text>']
    for step, text in marks:
        parts.append(f'<line x1="{x(step):.1f}" x2="{x(step):.1f}" y1="{margin / 2}" y2="{height - margin}" '
                     f'stroke="#d9483b"/><text x="{x(step) + 5:.1f}" y="{margin / 2 + 12}">{html.escape(text)}</text>')
    return "\n".join(parts) + "\n</svg>"


def table(head, rows):
    line = lambda cells, tag: "<tr>" + "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells) + "</tr>"
    return "<table>" + line(head, "th") + "".join(line(row, "td") for row in rows) + "</table>"


def write_page(folder, chapters, seconds):
    """FOLDER/index.html. A chapter's `pictures` are HTML."""
    parts = ['<!doctype html><html lang="en"><meta charset="utf-8"><title>Tutti: one story</title>',
             '<meta name="viewport" content="width=device-width">', f"<style>{STYLE}</style>",
             f"<h1>One story through the whole machine</h1><p>{len(chapters)} needs, {seconds:.0f} seconds, "
             "one program. Every number below was checked when this page was made.</p>"]
    for number, chapter in enumerate(chapters, 1):
        parts.append(f"<h2>{number}. {html.escape(chapter['title'])}</h2>"
                     f"<p class=\"need\">&ldquo;{html.escape(chapter['need'])}&rdquo;</p>")
        commands = [text for kind, text in chapter["lines"] if kind == "command"]
        facts = [text for kind, text in chapter["lines"] if kind == "fact"]
        if commands:
            parts.append("<pre>" + html.escape("\n".join(commands)) + "</pre>")
        parts.append("<ul>" + "".join(f"<li>{html.escape(text)}</li>" for text in facts) + "</ul>")
        parts += chapter["pictures"]
    with open(os.path.join(folder, "index.html"), "w") as file:
        file.write("\n".join(parts) + "\n")
