// What keeps the page up to date: sections are drawn by the server, which holds a request for them
// until one has changed, and replaced where they differ.
// Without scripts the page is as it was when it was loaded.
#include "tutti/control/web/server.h"

namespace tutti::control {
namespace {

constexpr std::string_view kScript = R"js("use strict";
(() => {
const state = document.getElementById("live-state");
if (!state) return;
const shown = {};
const buttons = box => [...box.querySelectorAll("button[data-toggle]")];
const name = button => button.closest("figure").id + " " + button.dataset.toggle;
const opened = box => [...box.querySelectorAll("details")];
// What the reader has pressed and opened stays so.
const replace = (box, html) => {
  const pressed = buttons(box).filter(b => b.getAttribute("aria-pressed") === "true").map(name);
  const open = opened(box).map(details => details.open);
  box.innerHTML = html;  // the server has escaped every text in it
  document.dispatchEvent(new Event("charts"));
  opened(box).forEach((details, i) => { if (i in open) details.open = open[i]; });
  for (const button of buttons(box)) {
    const on = button.getAttribute("aria-pressed") === "true";
    if (on !== pressed.includes(name(button))) button.click();
  }
};
let tag = null;  // of what is shown
const show = time => {
  state.textContent = "Up to date at " + time;
  state.classList.remove("stale");
};
const ask = async () => {
  try {
    const headers = tag ? {"If-None-Match": tag} : {};
    // The answer comes when something changes. A browser has six connections for all of its tabs.
    if (tag && !document.hidden) headers["Prefer"] = "wait=20";
    const answer = await fetch("/sections" + location.search,
                               {credentials: "same-origin", cache: "no-store", headers});
    if (answer.status === 401) { location.assign("/"); return 3000; }
    if (answer.status === 304) {
      show(new Date().toISOString().slice(0, 19) + "Z");
      return document.hidden ? 10000 : 500;
    }
    if (!answer.ok) throw new Error(answer.status);
    const data = await answer.json();
    tag = answer.headers.get("ETag");
    for (const [id, html] of Object.entries(data.sections)) {
      const box = document.getElementById("live-" + id);
      if (box && shown[id] !== html) { replace(box, html); shown[id] = html; }
    }
    document.querySelectorAll(".tiles>div").forEach((tile, i) => {
      tile.querySelectorAll("dd").forEach((part, j) => { part.textContent = data.tiles[i][j]; });
    });
    show(data.time);
    return document.hidden ? 10000 : 500;
  } catch (error) {
    if (leaving) return 3000;
    state.textContent = "No answer from the server; what is shown may be old";
    state.classList.add("stale");
    return 3000;
  }
};
let leaving = false;
addEventListener("beforeunload", () => { leaving = true; });
let timer = 0;  // 0: an answer is awaited
const refresh = async () => {
  timer = 0;
  timer = setTimeout(refresh, await ask());
};
document.addEventListener("visibilitychange", () => {
  if (document.hidden || !timer) return;
  clearTimeout(timer);
  refresh();
});
timer = setTimeout(refresh, 1000);
})();
)js";

}  // namespace

std::string_view web_script() { return kScript; }

}  // namespace tutti::control
