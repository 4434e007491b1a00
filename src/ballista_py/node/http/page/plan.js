// A plan, drawn: fragments with their legs at the top, what is broadcast, the merge, the answer; lines say what reads what.

import { el, keep, mark, measure, say, svg } from "./dom.js";
import { count, share, size, some, took } from "./words.js";

/** Draw the plan into `place`; `legs` say what each of them has given. */
export function plan(place, found, task, colours, lasts) {
  if (!place.drawing) {
    place.replaceChildren();
    place.drawing = { lines: svg("svg", { class: "edges", "aria-hidden": "true" }), rows: el("div", { class: "rows" }), notes: el("ul", { class: "notes muted" }) };
    place.append(el("div", { class: "drawn" }, place.drawing.lines, place.drawing.rows), place.drawing.notes);
    new ResizeObserver(() => edges(place.drawing)).observe(place.drawing.rows);
  }
  const boxes = boxes_of(found, task, lasts);
  const most = Math.max(1, ...found.legs.map((leg) => leg.took_ms));
  const layers = [...new Set(boxes.map((box) => box.layer))].sort((a, b) => a - b);
  keep(place.drawing.rows, layers, (layer) => layer, () => el("div", { class: "layer" }), (row, layer) => {
    keep(row, boxes.filter((box) => box.layer === layer), (box) => box.name, make, (element, box) => fill(element, box, found, colours, most));
  });
  keep(place.drawing.notes, found.notes, (note) => note, (note) => el("li", {}, note), () => {});
  place.drawing.boxes = boxes;
  edges(place.drawing);
}

/** The boxes, each in the layer below all that it reads. */
function boxes_of(found, task, lasts) {
  const boxes = [
    ...found.fragments.map((one) => ({ name: one.name, kind: "fragment", reads: one.uses, of: one })),
    ...found.broadcasts.map((one) => ({ name: one.name, kind: "broadcast", reads: [...one.fragments, ...one.uses], of: one })),
  ];
  const last = found.fragments.filter((one) => one.merged).map((one) => one.name);
  if (found.merge_sql !== null) boxes.push({ name: " merge", kind: "merge", reads: [...last, ...found.merge_uses], of: found });
  boxes.push({ name: " answer", kind: "answer", reads: found.merge_sql === null ? last : [" merge"], of: { task, lasts, stats: found.stats } });
  const byName = new Map(boxes.map((box) => [box.name, box]));
  const depth = (box, below) => {
    box.layer ??= below > boxes.length ? 0 : Math.max(-1, ...box.reads.filter((name) => byName.has(name)).map((name) => depth(byName.get(name), below + 1))) + 1;
    return box.layer;
  };
  boxes.forEach((box) => depth(box, 0));
  return boxes;
}

function make(box) {
  return el("div", { class: `box ${box.kind}` },
    el("p", { class: "title" }, el("b"), el("span", { class: "muted" })),
    el("ul", { class: "reads" }), el("ol", { class: "bars" }),
    el("details", {}, el("summary", {}, "SQL"), el("pre", { class: "sql" })));
}

function fill(element, box, found, colours, most) {
  const [title, tables, bars, sql] = element.children;
  const [name, note] = title.children;
  element.dataset.name = box.name;
  say(name, { fragment: "read", broadcast: "broadcast", merge: "merge", answer: "answer" }[box.kind]);
  say(note, note_of(box));
  keep(tables, box.of.tables ?? [], (one) => one.table, () => el("li", {}, el("span", { class: "mono" }), el("span", { class: "muted" })), (line, one) => {
    say(line.firstElementChild, one.table);
    say(line.lastElementChild, one.whole ? "whole, at each" : `${count(one.partitions)} of ${some(one.total, "partition")}`);
  });
  const legs = box.kind === "fragment" ? found.legs.filter((leg) => leg.fragment === box.name) : [];
  keep(bars, legs, (leg) => leg.executor_id, bar, (line, leg) => fill_bar(line, leg, colours, most));
  const text = box.kind === "merge" ? found.merge_sql : box.of.sql;
  mark(sql, "hidden", !text);
  say(sql.lastElementChild, text ?? "");
}

function note_of(box) {
  if (box.kind === "answer") {
    const { task, lasts, stats } = box.of;
    return [some(task.rows, "row"), size(task.bytes), took(lasts), `${size(stats.shipped_bytes)} shipped`, stats.replans ? `planned again ${stats.replans}x` : ""].filter(Boolean).join(" · ");
  }
  if (box.kind === "merge") return "at this scheduler";
  return `${box.name} · about ${size(box.of.estimated_bytes)}`;
}

function bar() {
  return el("li", {}, el("span", { class: "owner", "aria-hidden": "true" }), el("span", { class: "who" }),
    el("span", { class: "track", "aria-hidden": "true" }, el("i")), el("span", { class: "gave" }));
}

function fill_bar(line, leg, colours, most) {
  const [badge, who, track, gave] = line.children;
  const number = colours.get(leg.executor_id);
  mark(badge, "class", number === undefined ? "owner none" : `owner o${number % 8}`);
  say(badge, number === undefined ? "?" : number + 1);
  say(who, leg.executor_id);
  mark(line, "title", some(leg.partitions, "partition"));
  mark(line, "class", leg.ended ? "ended" : "runs");
  mark(track.firstElementChild, "class", number === undefined ? "none" : `o${number % 8}`);
  measure(track, "--share", `${leg.ended || leg.rows ? Math.max(2, share(leg.took_ms, most)) : 0}%`);
  say(gave, leg.ended || leg.rows ? `${leg.ended ? took(leg.took_ms) : "…"} · ${some(leg.rows, "row")} · ${size(leg.bytes)}` : "…");
}

/** The lines between the boxes, where they lie now. */
function edges({ lines, rows, boxes = [] }) {
  const home = rows.getBoundingClientRect();
  if (!home.width) return;
  mark(lines, "width", Math.ceil(home.width));
  mark(lines, "height", Math.ceil(home.height));
  const places = new Map([...rows.querySelectorAll(".box")].map((box) => [box.dataset.name, box.getBoundingClientRect()]));
  const wanted = boxes.flatMap((box) => box.reads.map((from) => ({ from: places.get(from), to: places.get(box.name), key: `${from} ${box.name}` }))).filter((one) => one.from && one.to);
  keep(lines, wanted, (one) => one.key, () => svg("path"), (path, { from, to }) => {
    const [x1, y1] = [from.left + from.width / 2 - home.left, from.bottom - home.top];
    const [x2, y2] = [to.left + to.width / 2 - home.left, to.top - home.top];
    const bend = Math.max(6, (y2 - y1) / 2);
    mark(path, "d", `M${x1.toFixed(1)} ${y1.toFixed(1)}C${x1.toFixed(1)} ${(y1 + bend).toFixed(1)} ${x2.toFixed(1)} ${(y2 - bend).toFixed(1)} ${x2.toFixed(1)} ${y2.toFixed(1)}`);
  });
}
