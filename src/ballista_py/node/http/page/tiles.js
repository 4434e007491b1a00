// The line at the top: how it is in seven numbers, each of which leads to its part of the page.

import { el, keep, mark, say } from "./dom.js";
import { part, state } from "./state.js";
import { count, share } from "./words.js";

/** Fill the list; `views` says which parts of the page there are. */
export function tiles(list, views) {
  const there = new Set(views.filter((view) => !view.section.hidden).map((view) => view.section.id));
  keep(list, figures().filter((one) => there.has(one.to)), (one) => one.name, make, fill);
}

function figures() {
  const nodes = part("nodes", { nodes: [] }).nodes;
  const silent = nodes.filter((node) => isSilent(node)).length;
  const { partitions: all, serving } = part("tables", { totals: { partitions: 0, serving: 0 } }).totals; // also of tables that are not drawn
  const ended = part("ended", []);
  const failed = ended.filter((task) => !["done", "cancelled"].includes(task.outcome)).length;
  const jobs = part("jobs", []);
  const open = jobs.filter((job) => ["PENDING", "RUNNING"].includes(job.state)).length;
  const memory = part("memory", []);
  const held = memory.reduce((most, row) => Math.max(most, share(row.memory?.held ?? 0, row.memory?.all ?? 0)), 0);
  const spilled = memory.reduce((total, row) => total + (row.spill_bytes ?? 0), 0);
  const gone = state.gone.size;
  return [
    { name: "running", to: "running", value: count(part("running", { tasks: [] }).tasks.length), kind: "" },
    { name: "nodes", to: "nodes", value: count(nodes.length), note: silent ? `${silent} silent` : gone ? `${gone} gone` : "", kind: silent || gone ? "warn" : "" },
    { name: "partitions served", to: "tables", value: `${count(serving)}/${count(all)}`, kind: serving < all ? "bad" : "" },
    { name: "failed of the last", to: "ended", value: `${count(failed)}/${count(ended.length)}`, kind: failed ? "warn" : "" },
    { name: "jobs open", to: "jobs", value: count(open), kind: "" },
    { name: "memory reserved", to: "memory", value: `${Math.round(held)} %`, note: spilled ? "spills" : "", kind: held > 90 ? "bad" : spilled ? "warn" : "" },
  ];
}

/** Whether a node that this one hears has been silent longer than it ever should be. */
export function isSilent(node) {
  const ttl = part("nodes", { ttl_ms: 30_000 }).ttl_ms;
  return node.silent_ms !== null && node.silent_ms !== undefined && node.silent_ms > ttl / 3;
}

function make(figure) {
  return el("li", {}, el("a", { href: `#${figure.to}` }, el("b"), el("span", { class: "name" }, figure.name), el("i")));
}

function fill(item, figure) {
  const [value, , note] = item.firstElementChild.children;
  say(value, figure.value);
  say(note, figure.note ?? "");
  mark(item, "class", figure.kind || null);
}
