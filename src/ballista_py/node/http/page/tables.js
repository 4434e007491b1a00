// The tables, and a map of their partitions: whose each is, in which state, how large, and who holds copies.

import { el, keep, mark, measure, say, surely } from "./dom.js";
import { mayAct, owners, part, state, wanted } from "./state.js";
import { changed, nothing, view } from "./view.js";
import { count, moment, size, some } from "./words.js";

const SMALL = 160; // partitions of a table beyond which their cells are small and bear no numbers
const MAX_DOTS = 3;
const MAX_FOUND = 100; // tables without a map that a filter finds, and that are listed
const HINT = "Point at a partition, or reach it by Tab and the arrows, to see whose it is.";
const REFRESHED = ["refresh_mode", "refresh_every", "refresh_at", "refresh_took_ms", "refresh_rows", "refresh_lag_ms", "refresh_next_at", "refresh_error"];

export function tables(act) {
  const legend = el("ul", { class: "legend", "aria-label": "Executors: press to see what one owns" });
  const states = el("ul", { class: "legend states", "aria-label": "States" }, ...["serving", "loading", "failed", "unassigned"].map((name) =>
    el("li", {}, el("span", { class: `cell key s-${name}`, "aria-hidden": "true" }), name)));
  const list = el("ol", { class: "tables" });
  const said = el("p", { class: "cell-said muted", "aria-live": "polite" }, HINT);
  const more = el("p", { class: "muted" });
  const none = nothing("No tables. CREATE TABLE makes one.");
  return view("tables", "Tables and partitions", ["tables"], [el("div", { class: "keys" }, legend, states), list, more, none, said], () => {
    const { tables: all, columns, named, others, totals } = part("tables", { tables: [], columns: [], named: [], others: [], totals: { tables: 0 } });
    const colours = owners();
    const place = Object.fromEntries(columns.map((name, index) => [name, index]));
    const found = all.filter((table) => wanted(table.table_name, table.group));
    const beyond = state.filter ? others.map((row) => Object.fromEntries(named.map((name, index) => [name, row[index]]))).filter((table) => wanted(table.table_name, table.group)) : [];
    found.push(...beyond.slice(0, MAX_FOUND).map((table) => ({ ...table, cells: [] })));
    mark(none, "hidden", all.length > 0);
    say(more, rest(totals.tables - all.length, totals.tables - all.length - others.length, beyond.length - MAX_FOUND));
    keep(legend, [...colours], ([name]) => name, make_key, (item, [name, number]) => {
      mark(item.firstElementChild, "aria-pressed", String(state.chosen === name));
      mark(item.firstElementChild.firstElementChild, "class", `owner o${number % 8}`);
      say(item.firstElementChild.firstElementChild, number + 1);
      mark(item, "class", state.gone.has(name) ? "gone" : null);
    });
    keep(list, found, (table) => table.table_name, (table) => make(table, act, said), (item, table) => fill(item, table, place, colours));
  });
}

/** What is said of tables that are not drawn: how many, and what a filter finds of them. */
function rest(undrawn, unnamed, cut) {
  if (!undrawn) return "";
  if (state.filter && cut > 0) return `${some(cut, "table")} more of that name, in runtime.tables.`;
  const finds = unnamed ? `the filter finds all but ${count(unnamed)} of them by name` : "the filter finds them by name";
  return `${some(undrawn, "table")} more are counted and not drawn: ${finds}, and they are in runtime.tables.`;
}

function make_key([name]) {
  const button = el("button", { type: "button", "aria-pressed": "false" }, el("span", { class: "owner", "aria-hidden": "true" }), el("span", {}, name));
  button.addEventListener("click", () => {
    state.chosen = state.chosen === name ? null : name;
    changed();
  });
  return el("li", {}, button);
}

function make(table, act, said) {
  const refresh = surely("Refresh", "Let every executor compare what it holds of this table with what is stored", () =>
    act("POST", `/v1/datasets/${encodeURIComponent(table.table_name)}/acceleration/refresh`, "Every executor compares what it holds."));
  const grid = el("div", { class: "cells", role: "grid" }, el("div", { role: "row", class: "cell-row" }));
  const item = el("li", {},
    el("div", { class: "table-head" }, el("h3", {}), el("span", { class: "badge" }), el("span", { class: "muted facts" }), refresh),
    el("p", { class: "bad" }), el("p", { class: "muted refreshes" }), grid);
  walk(grid, said);
  return item;
}

/** Arrows go from cell to cell, and what a cell is stands below the map. */
function walk(grid, said) {
  const cells = () => [...grid.firstElementChild.children];
  const show = (cell) => say(said, cell?.dataset.said ? `${grid.dataset.table} · ${cell.dataset.said}` : HINT);
  const go = (cell) => {
    if (!cell) return;
    grid.querySelector('[tabindex="0"]')?.setAttribute("tabindex", "-1");
    cell.setAttribute("tabindex", "0");
    cell.focus();
  };
  grid.addEventListener("focusin", (event) => show(event.target));
  grid.addEventListener("mouseover", (event) => show(event.target.closest("[data-said]")));
  grid.addEventListener("mouseleave", () => show(grid.contains(document.activeElement) ? document.activeElement : null));
  grid.addEventListener("focusout", () => show(null));
  grid.addEventListener("keydown", (event) => {
    const all = cells();
    const here = all.indexOf(document.activeElement);
    const top = all[here]?.offsetTop;
    const wide = Math.max(1, all.filter((cell) => cell.offsetTop === top).length);
    const step = { ArrowRight: 1, ArrowLeft: -1, ArrowDown: wide, ArrowUp: -wide }[event.key];
    const to = event.key === "Home" ? 0 : event.key === "End" ? all.length - 1 : step === undefined ? null : here + step;
    if (here < 0 || to === null) return;
    event.preventDefault();
    go(all[Math.max(0, Math.min(all.length - 1, to))]);
  });
}

function fill(item, table, place, colours) {
  const [head, trouble, refreshes, grid] = item.children;
  const [name, badge, facts, refresh] = head.children;
  say(name, table.table_name);
  say(badge, table.partitions === null ? "" : `${count(table.serving)}/${count(table.partitions)}`);
  mark(badge, "class", `badge ${table.ready ? "ok" : "bad"}`);
  mark(badge, "title", `${table.serving} of ${some(table.partitions, "partition")} served`);
  const keys = table.partition_by?.length ? table.partition_by.join(", ") : table.distribution;
  const drawn = table.cells.length;
  say(facts, [keys, table.rows === undefined ? "" : some(table.rows ?? 0, "row"), table.bytes === undefined ? "" : size(table.bytes), drawn < table.partitions && `${drawn ? count(drawn) : "none"} of them drawn`, table.group && table.group !== table.table_name && `beside ${table.group}`, table.source && `of ${table.source}`].filter(Boolean).join(" · "));
  mark(refresh, "hidden", !mayAct() || table.distribution === "view");
  const failed = Object.entries(table.failed ?? {});
  say(trouble, failed.slice(0, 3).map(([at, why]) => `${at}: ${why}`).join(" · "));
  mark(trouble, "hidden", failed.length === 0);
  const refreshed = REFRESHED.filter((key) => table[key] !== undefined && table[key] !== null && table[key] !== "");
  say(refreshes, refreshed.map((key) => `${key.replaceAll("_", " ").replace(/ (ms|at)$/, "")} ${refresh_word(key, table[key])}`).join(" · "));
  mark(refreshes, "hidden", refreshed.length === 0);
  grid.dataset.table = table.table_name;
  mark(grid, "aria-label", `Partitions of ${table.table_name}`);
  mark(grid, "class", `cells${table.cells.length > SMALL ? " small" : ""}`);
  const most = Math.max(1, ...table.cells.map((cell) => cell[place.bytes] ?? 0));
  const row = grid.firstElementChild;
  keep(row, table.cells, (cell) => cell[place.partition], () => el("span", { role: "gridcell", tabindex: "-1" }, el("i"), el("b"), el("span", { class: "dots" })),
    (element, cell) => fill_cell(element, cell, place, colours, most, table));
  if (row.firstElementChild && !row.querySelector('[tabindex="0"]')) row.firstElementChild.setAttribute("tabindex", "0");
}

function refresh_word(key, value) {
  if (key.endsWith("_at")) return typeof value === "number" ? moment(value / 1000) : String(value); // microseconds, as in runtime.tables
  return typeof value === "number" && key.endsWith("_ms") ? `${count(Math.round(value / 1000))} s` : String(value);
}

function fill_cell(element, cell, place, colours, most, table) {
  const isWhole = table.distribution === "replicated";
  const [bar, label, dots] = element.children;
  const owner = cell[place.owner];
  const replicas = cell[place.replicas] ?? [];
  const number = colours.get(owner);
  const bytes = cell[place.bytes];
  const isChosen = state.chosen === null || isWhole || owner === state.chosen || replicas.includes(state.chosen);
  mark(element, "class", `cell s-${cell[place.state]} ${isWhole || number === undefined ? "none" : `o${number % 8}`}${isChosen ? "" : " dim"}`);
  measure(bar, "--share", `${bytes ? Math.max(8, Math.round(100 * Math.sqrt(bytes / most))) : 0}%`);
  say(label, { failed: "!", unassigned: "?" }[cell[place.state]] ?? (isWhole ? "∗" : number === undefined ? "" : number + 1));
  keep(dots, isWhole ? [] : replicas.slice(0, MAX_DOTS), (name) => name, () => el("i"), (dot, name) => mark(dot, "class", `o${(colours.get(name) ?? 0) % 8}`));
  const words = [
    `partition ${cell[place.partition]}`, readable(cell[place.path], table.partition_by ?? []), isWhole ? "at every executor" : owner ? `owner ${owner}` : "no owner", cell[place.state],
    cell[place.rows] === null ? "" : some(cell[place.rows], "row"), bytes === null ? "" : size(bytes), `epoch ${cell[place.epoch]}`,
    cell[place.target] ? `moves to ${cell[place.target]}` : "", replicas.length ? `copies at ${replicas.join(", ")}` : "",
  ].filter((word) => word !== "" && word !== null && word !== undefined).join(" · ");
  if (element.dataset.said !== words) {
    element.dataset.said = words;
    element.setAttribute("aria-label", words);
  }
}

/** The path of a partition, as its values read; a key that has no name of its own is said as the table declares it. */
function readable(path, keys) {
  const named = (step, place) => (step.startsWith(`expr${place}=`) && keys[place] ? `${keys[place]}${step.slice(step.indexOf("="))}` : step);
  try {
    return (path ?? "").split("/").map((step, place) => named(decodeURIComponent(step), place)).join("/");
  } catch {
    return path;
  }
}
