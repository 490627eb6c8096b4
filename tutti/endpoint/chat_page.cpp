#include "tutti/endpoint/chat_page.h"

#include <fmt/format.h>

#include <string_view>

namespace tutti::endpoint {
namespace {

constexpr std::string_view kStyle = R"css(
:root{color-scheme:light;--ground:#f6f5f1;--card:#fff;--ink:#1c1d1f;--soft:#5d6065;--rule:#dedbd3;
--tint:#efeee9;--accent:#1f5ec9;--bad:#a8281a}
@media (prefers-color-scheme:dark){:root{color-scheme:dark;--ground:#141516;--card:#1b1d1f;
--ink:#eceae6;--soft:#a5a7aa;--rule:#33363a;--tint:#22262b;--accent:#79a8ff;--bad:#ff9b8f}}
*{box-sizing:border-box}
html,body{height:100%}
body{margin:0;display:flex;flex-direction:column;background:var(--ground);color:var(--ink);
font:1rem/1.55 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue","Noto Sans",sans-serif}
:focus-visible{outline:2px solid var(--accent);outline-offset:2px;border-radius:4px}
header,main,form{width:100%;max-width:52rem;margin:0 auto;padding:0 1.25rem}
header{display:flex;flex-wrap:wrap;gap:.6rem 1rem;align-items:center;padding-top:1rem;
padding-bottom:.8rem}
h1{font-size:1.0625rem;font-weight:650;margin:0;margin-right:auto}
label{font-size:.8125rem;color:var(--soft)}
select,input,button,textarea{font:inherit;color:var(--ink);background:var(--card);
border:1px solid var(--rule);border-radius:8px;padding:.35rem .6rem}
select,input,button{font-size:.875rem}
select{max-width:16rem}
input[type=number]{width:5rem}
button{cursor:pointer;white-space:nowrap}
button:hover{border-color:var(--soft)}
button:disabled{opacity:.5;cursor:default}
details{position:relative;font-size:.875rem}
summary{cursor:pointer;color:var(--soft);padding:.35rem 0}
details .box{position:absolute;right:0;z-index:1;margin-top:.3rem;padding:.9rem;display:grid;
grid-template-columns:auto auto;gap:.55rem .8rem;align-items:center;background:var(--card);
border:1px solid var(--rule);border-radius:10px;box-shadow:0 6px 20px #0002;width:max-content;
max-width:calc(100vw - 2.5rem)}
main{flex:1;overflow-y:auto;padding-top:.5rem;padding-bottom:1rem}
.empty{color:var(--soft);margin:20vh auto 0;text-align:center;max-width:30rem}
.turn{margin:0 0 1.1rem;overflow-wrap:anywhere}
.turn h2{margin:0 0 .15rem;font-size:.8125rem;font-weight:600;color:var(--soft)}
.turn .text{white-space:pre-wrap}
.user .text{background:var(--tint);border-radius:10px;padding:.6rem .85rem}
.note{font-size:.8125rem;color:var(--soft);margin:.25rem 0 0}
.error{color:var(--bad)}
.busy .text::after{content:"";display:inline-block;width:.5em;height:1em;margin-left:.15em;
background:var(--accent);vertical-align:text-bottom;animation:blink 1s steps(2) infinite}
@keyframes blink{50%{opacity:0}}
@media (prefers-reduced-motion:reduce){.busy .text::after{animation:none}}
form{padding-bottom:1.1rem}
.entry{display:flex;gap:.6rem;align-items:flex-end;background:var(--card);
border:1px solid var(--rule);border-radius:12px;padding:.55rem}
textarea{flex:1;border:0;resize:none;min-height:2.6rem;max-height:40vh;background:none;
padding:.35rem .4rem}
textarea:focus-visible{outline:none}
.entry:focus-within{border-color:var(--accent)}
.main{background:var(--accent);border-color:var(--accent);color:var(--ground);font-weight:600;
padding:.5rem 1rem}
)css";

constexpr std::string_view kBody = R"html(
<header><h1>Tutti</h1>
<label for="model">Model</label> <select id="model"></select>
<details><summary>Settings</summary><div class="box">
<label for="temperature">Temperature</label>
<input id="temperature" type="number" min="0" max="2" step="0.1" value="0.7">
<label for="tokens">Most tokens</label>
<input id="tokens" type="number" min="1" step="1" value="512">
<label for="system">Instructions</label> <input id="system" type="text" placeholder="none">
<label for="key">API key</label> <input id="key" type="password" autocomplete="off">
</div></details>
<button id="clear" type="button">New chat</button></header>
<main id="turns" aria-live="polite"><p class="empty" id="empty">Loading the list of models.</p></main>
<form id="form"><div class="entry">
<textarea id="text" rows="1" aria-label="Message" placeholder="Message" autofocus></textarea>
<button id="stop" type="button" hidden>Stop</button>
<button id="send" class="main" type="submit">Send</button></div></form>
<noscript><p class="empty">This page needs JavaScript.</p></noscript>
)html";

constexpr std::string_view kScript = R"js("use strict";
(() => {
const at = id => document.getElementById(id);
const models = {};
let turns = [];      // {role, content}
let running = null;  // the AbortController of the answer that is being written
const headers = () => {
  const all = {"Content-Type": "application/json"};
  if (at("key").value) all["Authorization"] = "Bearer " + at("key").value;
  return all;
};
const complaint = async answer => {
  try { return (await answer.json()).error.message; } catch { return "HTTP " + answer.status; }
};
const add = (role, text) => {
  if (at("empty")) at("empty").remove();
  const turn = document.createElement("section");
  turn.className = "turn " + role;
  const title = document.createElement("h2");
  title.textContent = role === "user" ? "You" : at("model").value;
  const box = document.createElement("div");
  box.className = "text";
  box.textContent = text;
  turn.append(title, box);
  at("turns").append(turn);
  turn.scrollIntoView({block: "end"});
  return turn;
};
const note = (turn, text, bad) => {
  const line = document.createElement("p");
  line.className = bad ? "note error" : "note";
  line.textContent = text;
  turn.append(line);
  turn.scrollIntoView({block: "end"});
};
const invite = () => {
  if (at("empty")) at("empty").remove();
  at("turns").textContent = "";
  const line = document.createElement("p");
  line.className = "empty";
  line.id = "empty";
  const model = models[at("model").value];
  line.textContent = !model ? "No model is listed. If this endpoint asks for a key, give it in Settings."
    : model.chat ? "Ask " + at("model").value + " something."
    : at("model").value + " has no chat template: it continues the text that you write.";
  at("turns").append(line);
  at("text").placeholder = model && !model.chat ? "Text to continue" : "Message";
};
const load = async () => {
  try {
    const answer = await fetch("/v1/models", {headers: headers()});
    if (!answer.ok) throw new Error(await complaint(answer));
    const list = (await answer.json()).data;
    at("model").textContent = "";
    for (const model of list) {
      models[model.id] = model;
      at("model").append(new Option(model.id, model.id));
    }
    if (!turns.length) invite();
  } catch (error) {
    invite();
    if (at("key").value) at("empty").textContent = error.message;
  }
};
// Calls `take` with the data of each event of the stream.
const events = async (body, take) => {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const {value, done} = await reader.read();
    if (done) return;
    rest += value;
    const parts = rest.split("\n\n");
    rest = parts.pop();
    for (const part of parts) if (part.startsWith("data: ")) take(part.slice(6));
  }
};
const busy = on => {
  at("send").disabled = on;
  at("stop").hidden = !on;
};
const ask = async () => {
  const text = at("text").value;
  const model = models[at("model").value];
  if (!text.trim() || running || !model) return;
  at("text").value = "";
  grow();
  add("user", text);
  turns.push({role: "user", content: text});
  const request = {model: model.id, stream: true, stream_options: {include_usage: true},
                   temperature: Number(at("temperature").value),
                   max_tokens: Math.max(1, Number(at("tokens").value) || 512)};
  if (model.chat) {
    const system = at("system").value;
    request.messages = system ? [{role: "system", content: system}, ...turns] : turns;
  } else {
    request.prompt = text;
  }
  request.max_tokens = Math.min(request.max_tokens, Math.max(1, model.max_model_len >> 1));
  const turn = add("assistant", "");
  turn.classList.add("busy");
  const box = turn.querySelector(".text");
  running = new AbortController();
  busy(true);
  const began = performance.now();
  let said = "", reason = "", usage = null;
  try {
    const send = () => fetch(model.chat ? "/v1/chat/completions" : "/v1/completions",
      {method: "POST", headers: headers(), body: JSON.stringify(request), signal: running.signal});
    let answer = await send();
    if (answer.status === 400 && model.chat) {  // with what the conversation leaves, if it does
      const {code, param} = (await answer.clone().json()).error;
      if (code === "context_length_exceeded" && param === "max_tokens") {
        delete request.max_tokens;
        answer = await send();
      }
    }
    if (!answer.ok) throw new Error(await complaint(answer));
    await events(answer.body, data => {
      if (data === "[DONE]") return;
      const event = JSON.parse(data);
      if (event.error) throw new Error(event.error.message);
      if (event.usage) usage = event.usage;
      for (const choice of event.choices) {
        said += (model.chat ? choice.delta.content : choice.text) || "";
        reason = choice.finish_reason || reason;
      }
      box.textContent = said;
      turn.scrollIntoView({block: "end"});
    });
    const seconds = (performance.now() - began) / 1000;
    if (usage) {
      note(turn, usage.completion_tokens + " tokens, " +
        (usage.completion_tokens / seconds).toFixed(1) + " per second" +
        (reason === "length" ? "; cut off at the most tokens" : ""));
    }
  } catch (error) {
    if (error.name === "AbortError") note(turn, "Stopped.");
    else note(turn, error.message, true);
  }
  turns.push({role: "assistant", content: said});
  turn.classList.remove("busy");
  running = null;
  busy(false);
  at("text").focus();
};
const grow = () => {
  at("text").style.height = "auto";
  at("text").style.height = at("text").scrollHeight + "px";
};
at("form").addEventListener("submit", event => { event.preventDefault(); ask(); });
at("text").addEventListener("input", grow);
at("text").addEventListener("keydown", event => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    ask();
  }
});
at("stop").addEventListener("click", () => running && running.abort());
at("clear").addEventListener("click", () => {
  if (running) running.abort();
  turns = [];
  invite();
});
at("model").addEventListener("change", () => { if (!turns.length) invite(); });
at("key").addEventListener("change", load);
load();
})();
)js";

}  // namespace

std::string chat_page(const std::string& nonce) {
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\">\n"
      "<title>Tutti: chat</title>\n<link rel=\"icon\" href=\"data:,\">\n"
      "<style nonce=\"{0}\">{1}</style></head>\n<body>{2}<script nonce=\"{0}\">{3}</script>"
      "</body></html>\n",
      nonce, kStyle, kBody, kScript);
}

std::string chat_page_policy(const std::string& nonce) {
  return fmt::format(
      "default-src 'none'; img-src data:; style-src 'nonce-{0}'; script-src 'nonce-{0}'; "
      "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
      nonce);
}

}  // namespace tutti::endpoint
