// What moves on a page: the theme button, the buttons of a chart, and the readout under the pointer
// or the arrow keys. Nothing here writes markup: texts go through textContent.
#include "tutti/report/page.h"

namespace tutti::report {
namespace {

constexpr std::string_view kScript = R"js(
"use strict";
(() => {
const number = (x, digits) => x.toLocaleString("en-US",
  {minimumFractionDigits: digits, maximumFractionDigits: digits});
const scaled = (x, names, base) => {
  let i = 0;
  while (Math.abs(x) >= base && i + 1 < names.length) { x /= base; i += 1; }
  return number(x, i ? 2 : 0) + names[i];
};
const write = {
  number: x => String(Number(x.toPrecision(4))),
  loss: x => number(x, 4),
  ratio: x => number(100 * x, 1) + "%",
  seconds: x => x < 1 ? Number((1000 * x).toPrecision(3)) + " ms" : x < 60 ? number(x, 1) + " s" :
    x < 3600 ? Math.floor(x / 60) + " min " + Math.floor(x % 60) + " s" :
    Math.floor(x / 3600) + " h " + Math.floor(x % 3600 / 60) + " min",
  rate: x => x < 1e5 ? number(x, 0) : scaled(x, ["", " k", " M", " B", " T"], 1000),
  bytes: x => scaled(x, [" B", " KiB", " MiB", " GiB", " TiB"], 1024),
  integer: x => number(x, 0)
};
const make = (tag, className, text) => {
  const element = document.createElement(tag);
  element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
};

const theme = document.getElementById("theme");
const root = document.documentElement;
const dark = () => root.dataset.theme ? root.dataset.theme === "dark" :
  matchMedia("(prefers-color-scheme: dark)").matches;
const nameTheme = () => { theme.textContent = dark() ? "Light" : "Dark"; };
theme.setAttribute("aria-label", "Change between light and dark");
theme.hidden = false;
nameTheme();
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", nameTheme);
theme.addEventListener("click", () => {
  root.dataset.theme = dark() ? "light" : "dark";
  nameTheme();
});

// The index of the value nearest to `x` in an ascending array.
const nearest = (values, x) => {
  let low = 0, high = values.length - 1;
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (values[middle] <= x) low = middle; else high = middle;
  }
  return Math.abs(values[low] - x) <= Math.abs(values[high] - x) ? low : high;
};

const attach = figure => {
  for (const button of figure.querySelectorAll("button[data-toggle]")) {
    button.addEventListener("click", () => {
      const on = figure.classList.toggle("is-" + button.dataset.toggle);
      button.setAttribute("aria-pressed", String(on));
    });
  }
  const block = figure.querySelector('script[type="application/json"]');
  const area = figure.querySelector(".area");
  if (!block || !area) return;
  const data = JSON.parse(block.textContent);
  const guide = data.curves.reduce((a, b) => b.x.length > a.x.length ? b : a);
  const span = data.x[1] - data.x[0];
  const cursor = make("div", "cursor"), readout = make("div", "readout");
  readout.setAttribute("aria-live", "polite");
  let dots = [], at = -1;
  let held = false, pointer = NaN;  // by the keys, whatever moves under a pointer that rests

  const hide = () => {
    for (const element of [cursor, readout, ...dots]) element.remove();
    dots = [];
  };
  const height = y => {
    const log = figure.classList.contains("is-log") && data.log;
    const [low, high] = log || data.lin;
    return log ? Math.log(y / low) / Math.log(high / low) : (y - low) / (high - low);
  };
  const show = index => {
    hide();
    at = Math.max(0, Math.min(guide.x.length - 1, index));
    const x = guide.x[at], left = 100 * (x - data.x[0]) / span;
    const smooth = figure.classList.contains("is-smooth");
    readout.replaceChildren(make("b", "", data.xname + " " + write[data.xq](x) +
      (data.tokens ? " · " + scaled(x * data.tokens, ["", " k", " M", " B", " T"], 1000) +
      " tokens" : "")));
    cursor.style.left = left + "%";
    for (const curve of data.curves) {
      const i = nearest(curve.x, x);
      const value = smooth && curve.mean.length ? curve.mean[i] : curve.y[i];
      // A curve has something to say where it has a value nearby.
      if (value === null || value === undefined || Math.abs(curve.x[i] - x) > span / 12) continue;
      const line = make("span", "");
      line.append(make("i", "dot-key fill c" + curve.c), curve.name + " " + write[data.yq](value));
      if (smooth && curve.mean.length && curve.y[i] !== null) {
        line.append(" (" + write[data.yq](curve.y[i]) + ")");
      }
      readout.append(line);
      const dot = make("div", "dot c" + curve.c);
      dot.style.left = 100 * (curve.x[i] - data.x[0]) / span + "%";
      dot.style.top = 100 * (1 - height(value)) + "%";
      dots.push(dot);
    }
    readout.style.left = left < 55 ? "calc(" + left + "% + .7rem)" : "auto";
    readout.style.right = left < 55 ? "auto" : "calc(" + (100 - left) + "% + .7rem)";
    area.append(cursor, ...dots, readout);
  };
  const follow = event => {
    if (held && event.clientX === pointer) return;
    held = false;
    pointer = event.clientX;
    const box = area.getBoundingClientRect();
    show(nearest(guide.x, data.x[0] + span * (event.clientX - box.left) / box.width));
  };
  area.addEventListener("pointermove", follow);
  area.addEventListener("pointerdown", follow);
  area.addEventListener("pointerleave", () => { if (!held) hide(); });
  area.addEventListener("blur", hide);
  area.addEventListener("focus", () => { if (area.matches(":focus-visible")) show(at < 0 ? 0 : at); });
  area.addEventListener("keydown", event => {
    const step = event.shiftKey ? 20 : 1;
    const to = {ArrowLeft: at - step, ArrowRight: at + step, Home: 0,
      End: guide.x.length - 1}[event.key];
    if (event.key === "Escape") hide();
    if (to === undefined) return;
    event.preventDefault();
    held = true;
    show(to);
  });
};
const attached = new WeakSet();
const attachAll = () => {
  for (const figure of document.querySelectorAll("figure.chart")) {
    if (!attached.has(figure)) attach(figure);
    attached.add(figure);
  }
};
attachAll();
document.addEventListener("charts", attachAll);  // a served page has put in others
})();
)js";

}  // namespace

std::string_view page_script() { return kScript; }

std::string_view page_script_hash() {
  return "sha256-F+t1SLnjDCVoDO3/lHRjYEIPTeWfba4xJh4e1NXMppU=";
}

}  // namespace tutti::report
