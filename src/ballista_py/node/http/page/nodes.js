// The members of the cluster, how this node hears them, and those that left.

import { el, keep, mark, measure, say } from "./dom.js";
import { owners, part, state, wanted } from "./state.js";
import { isSilent } from "./tiles.js";
import { view } from "./view.js";
import { count, moment, share, took } from "./words.js";

export function nodes() {
  const body = el("tbody");
  const table = el("table", { class: "fold" },
    el("thead", {}, el("tr", {}, ...["node", "state", "heard, lease", "partitions", "address"].map((name, index) =>
      el("th", { scope: "col", class: index === 3 ? "number" : null }, name)))), body);
  const lease = el("p", { class: "muted aside" });
  return view("nodes", "Nodes", ["nodes"], [table], () => {
    const { nodes: here, lease_ms: left, ttl_ms: ttl } = part("nodes", { nodes: [], lease_ms: 0, ttl_ms: 1 });
    const colours = owners();
    const rows = [
      ...here.map((node) => ({ node, left: left, ttl })),
      ...[...state.gone.values()].map(({ node, at }) => ({ node, gone: at, ttl })),
    ].filter(({ node }) => wanted(node.node_id, node.role, node.address));
    keep(body, rows, (row) => row.node.node_id, make, (line, row) => fill(line, row, colours));
    say(lease, here.length ? `${here.filter((n) => n.role === "scheduler").length} schedulers, ${here.filter((n) => n.role === "executor").length} executors` : "");
  }, { aside: lease });
}

function make() {
  return el("tr", {},
    el("th", { scope: "row" }, el("span", { class: "owner", "aria-hidden": "true" }), el("span")),
    el("td", { "data-label": "state" }, el("span", { class: "badge" })),
    el("td", { "data-label": "lease", title: "How long ago it was heard here, and how much of its lease is left" }, el("span", { class: "meter", "aria-hidden": "true" }, el("i")), el("span", { class: "nowrap" })),
    el("td", { "data-label": "partitions", class: "number" }),
    el("td", { "data-label": "address", class: "mono" }));
}

function fill(line, row, colours) {
  const { node, gone } = row;
  const [name, condition, lease, partitions, address] = line.children;
  const number = colours.get(node.node_id);
  mark(name.firstElementChild, "class", number === undefined ? "owner none" : `owner o${number % 8}`);
  say(name.firstElementChild, number === undefined ? "S" : number + 1);
  say(name.lastElementChild, node.node_id);
  mark(name, "title", `${node.role}, instance ${node.instance_id}`);
  const [word, kind] = condition_of(node, gone);
  say(condition.firstElementChild, word);
  mark(condition.firstElementChild, "class", `badge ${kind}`);
  const isOwn = node.node_id === state.hello.node_id && !gone;
  const left = gone ? 0 : isOwn ? row.left : node.silent_ms === null ? null : Math.max(0, row.ttl - node.silent_ms);
  mark(lease.firstElementChild, "hidden", left === null);
  measure(lease.firstElementChild, "--share", `${share(left ?? 0, row.ttl)}%`);
  say(lease.lastElementChild, gone ? `left ${moment(gone)}` : isOwn ? `${took(row.left)} left` : node.silent_ms === null ? "" : `${took(Math.round(node.silent_ms))} ago`);
  say(partitions, node.role === "executor" ? count(gone ? 0 : node.partitions) : "");
  say(address, node.address);
  mark(line, "class", gone ? "gone" : null);
}

function condition_of(node, gone) {
  if (gone) return ["gone", "bad"];
  if (isSilent(node)) return ["silent", "bad"];
  if (node.draining) return ["draining", "warn"];
  if (node.silent_ms === null) return ["member", ""];
  return ["live", "ok"];
}
