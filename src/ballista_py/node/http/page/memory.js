// What each node has reserved of its memory, holds in its cache, and has spilled to its disk.

import { el, keep, mark, measure, say } from "./dom.js";
import { owners, part, wanted } from "./state.js";
import { view } from "./view.js";
import { count, share, size } from "./words.js";

const COLUMNS = ["node", "memory reserved", "loaded", "cache", "spilled"];

export function memory() {
  const body = el("tbody");
  const table = el("table", { class: "fold" },
    el("thead", {}, el("tr", {}, ...COLUMNS.map((name) => el("th", { scope: "col" }, name)))), body);
  return view("memory", "Memory, cache, spill", ["memory"], [table], () => {
    const colours = owners();
    const rows = part("memory", []).filter((row) => wanted(row.node_id));
    keep(body, rows, (row) => row.node_id, make, (line, row) => fill(line, row, colours));
  });
}

function make() {
  const metered = (label) => el("td", { "data-label": label }, el("span", { class: "meter", "aria-hidden": "true" }, el("i")), el("span"));
  return el("tr", {},
    el("th", { scope: "row" }, el("span", { class: "owner", "aria-hidden": "true" }), el("span")),
    metered("memory reserved"), metered("loaded"),
    el("td", { "data-label": "cache" }), el("td", { "data-label": "spilled" }));
}

function fill(line, row, colours) {
  const [name, reserved, loaded, cache, spilled] = line.children;
  const number = colours.get(row.node_id);
  mark(name.firstElementChild, "class", number === undefined ? "owner none" : `owner o${number % 8}`);
  say(name.firstElementChild, number === undefined ? "S" : number + 1);
  say(name.lastElementChild, row.node_id);
  const { held = 0, waited_for: waited = 0, all = 0 } = row.memory ?? {};
  gauge(reserved, share(held, all), row.answered === false ? "does not answer" : `${size(held)} of ${size(all)}${waited ? `, ${size(waited)} wait` : ""}`);
  const { asked = 0, loaded: done = 0 } = row.load ?? {};
  mark(loaded.firstElementChild, "hidden", !asked);
  gauge(loaded, share(done, asked), asked ? (done === asked ? size(done) : `${size(done)} of ${size(asked)}`) : "");
  const files = row.cache_files ?? {};
  say(cache, row.cache_bytes === undefined ? "" : [size(row.cache_bytes), ...["reused", "fetched", "damaged"].filter((name) => files[name]).map((name) => `${count(files[name])} ${name}`)].join(", "));
  mark(cache, "class", files.damaged ? "bad" : null);
  say(spilled, row.spill_bytes === undefined ? "" : row.spill_bytes ? size(row.spill_bytes) : "–");
  mark(spilled, "class", row.spill_bytes ? "warn" : null);
}

function gauge(cell, percent, text) {
  measure(cell.firstElementChild, "--share", `${percent}%`);
  say(cell.lastElementChild, text);
}
