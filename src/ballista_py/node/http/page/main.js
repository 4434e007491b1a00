// The page: it listens, and lets each view show what came.

import { el, mark, say } from "./dom.js";
import { jobs } from "./jobs.js";
import { memory } from "./memory.js";
import { nodes } from "./nodes.js";
import { ended, running } from "./statements.js";
import { forgetState, isTrouble, noteGone, part, state } from "./state.js";
import { ask, listen, NotAllowed, token } from "./stream.js";
import { tables } from "./tables.js";
import { tiles } from "./tiles.js";

const STALE_MS = 8_000;
const byId = (id) => document.getElementById(id);

/** Tell whoever looks, who may not see the screen, either. */
function tell(text) {
  const line = el("p", { class: "toast" }, text);
  byId("said").append(line);
  setTimeout(() => line.remove(), 8000);
}

/** Do something at the node, and say what came of it. */
async function act(method, path, done) {
  try {
    await ask(path, method);
    tell(done);
  } catch (error) {
    if (error instanceof NotAllowed) askForToken(error.message);
    else tell(error.message);
  }
}

// Two columns where there is room; those whose part this node does not have are left out.
let views = [];
let heardAt = 0;
let isPaused = false;
let isDrawing = false;

function draw() {
  if (isDrawing) return;
  isDrawing = true;
  requestAnimationFrame(() => {
    isDrawing = false;
    const has = new Set(state.hello.parts);
    for (const view of views) {
      mark(view.section, "hidden", !view.parts.some((name) => has.has(name)) || (view.own && state.hello.kind === "viewer"));
      if (view.section.hidden) continue;
      const troubles = view.parts.map((name) => state.parts[name]).filter(isTrouble);
      say(view.trouble, troubles.map((one) => one.error).join(" · "));
      mark(view.trouble, "hidden", troubles.length === 0);
      view.draw();
    }
    tiles(byId("tiles"), views);
  });
}

function link(text, kind) {
  say(byId("link-text"), text);
  byId("link").className = `link ${kind}`;
  document.body.classList.toggle("stale", kind === "lost");
}

function onEvent(name, data) {
  heardAt = Date.now();
  if (name === "hello") {
    state.hello = data;
    state.parts = {};
    say(byId("node"), data.node_id);
    document.title = `${data.node_id} · ballista_py`;
    mark(byId("forget"), "hidden", !token.get());
    mark(byId("token-form"), "hidden", true);
    mark(byId("main"), "hidden", null);
  } else if (name === "trouble") {
    link(data.error, "busy");
    return;
  } else if (name !== "same") {
    if (name === "nodes" && !isTrouble(data)) noteGone(part("nodes", { nodes: [] }).nodes, data.nodes);
    if (name === "running" && data.now_ms) state.skew = Date.now() - data.now_ms;
    state.parts[name] = data;
  }
  link(isPaused ? "paused" : "live", isPaused ? "busy" : "live");
  if (!isPaused) draw();
}

/** Make the page as it is before anything has come. */
function build() {
  const columns = [[running(act), tables(act), ended(act)], [nodes(), memory(), jobs(act)]];
  views = columns.flat();
  byId("main").replaceChildren(...columns.map((column) => el("div", { class: "column" }, ...column.map((view) => view.section))));
}

/** What was shown is nobody's any more: nothing of it stays in the document, hidden or not. */
function forget() {
  heardAt = 0;
  forgetState();
  build();
  byId("said").replaceChildren();
  byId("tiles").replaceChildren();
  byId("tiles").kept = undefined;
  byId("filter").value = "";
  say(byId("node"), "…");
  document.title = "ballista_py";
}

function askForToken(why) {
  const form = byId("token-form");
  say(byId("token-said"), token.get() ? why : `${why}.`);
  mark(form, "hidden", null);
  mark(byId("main"), "hidden", true);
  forget();
  mark(byId("forget"), "hidden", true);
  token.forget();
  link("no token", "busy");
  byId("token").focus();
}

async function start() {
  try {
    await listen({ event: onEvent, link });
  } catch (error) {
    if (!(error instanceof NotAllowed)) throw error;
    askForToken(error.message);
  }
}

byId("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  token.set(byId("token").value.trim());
  byId("token").value = "";
  start();
});
byId("forget").addEventListener("click", () => {
  token.forget();
  location.reload();
});
byId("pause").addEventListener("click", () => {
  isPaused = !isPaused;
  mark(byId("pause"), "aria-pressed", String(isPaused));
  link(isPaused ? "paused" : "live", isPaused ? "busy" : "live");
  if (!isPaused) draw();
});
byId("filter").addEventListener("input", () => {
  state.filter = byId("filter").value.trim().toLowerCase();
  draw();
});
document.addEventListener("keydown", (event) => {
  const isTyping = event.target.closest("input, textarea");
  if (event.key === "/" && !isTyping && !event.ctrlKey && !event.metaKey) {
    event.preventDefault();
    byId("filter").focus();
  } else if (event.key === "Escape" && event.target === byId("filter")) {
    byId("filter").value = state.filter = "";
    draw();
  }
});
document.addEventListener("changed", draw); // something was unfolded or chosen
setInterval(() => {
  if (heardAt && Date.now() - heardAt > STALE_MS) link(`no news for ${Math.round((Date.now() - heardAt) / 1000)} s`, "lost");
  else if (heardAt && !isPaused) draw(); // what runs gets older
}, 1000);

build();
start();
