// What runs, with the progress of each leg, and what ended last; unfolded, each with its plan.

import { el, keep, mark, measure, say, surely } from "./dom.js";
import { plan } from "./plan.js";
import { mayAct, me, owners, part, state, wanted } from "./state.js";
import { ask } from "./stream.js";
import { changed, nothing, view } from "./view.js";
import { count, moment, size, some, took, whole } from "./words.js";

const ASK_AGAIN_MS = 1000;
const FEW = 15; // shown of what ended, until more are asked for
const MOST = 100;
const MERGE = " merge"; // no executor is called so
const CUT = 400; // characters of what ended, as events have it
const name_of = (task) => `${task.node_id} ${task.task_id} ${task.span_id}`;

export function running(act) {
  const list = el("ol", { class: "list tasks" });
  const none = nothing("Nothing runs here now.");
  return view("running", "Running", ["running", "elsewhere"], [list, none], () => {
    const { tasks, legs } = part("running", { tasks: [], legs: {} });
    const others = part("elsewhere", []).filter((task) => task.outcome === "running");
    const found = [...tasks, ...others].filter(is_wanted);
    mark(none, "hidden", found.length > 0);
    const colours = owners();
    keep(list, found, name_of, (task) => make(task, act), (line, task) => fill(line, task, legs[task.task_id], colours));
  });
}

export function ended(act) {
  const list = el("ol", { class: "list tasks" });
  const none = nothing("Nothing has ended here yet.");
  const more = el("button", { type: "button", class: "more" });
  more.addEventListener("click", () => {
    state.all = !state.all;
    changed();
  });
  return view("ended", "Ended", ["ended", "elsewhere"], [list, none, more], () => {
    const others = part("elsewhere", []).filter((task) => task.outcome !== "running");
    const found = [...part("ended", []), ...others].filter(is_wanted)
      .sort((a, b) => b.started_at_ms + b.took_ms - a.started_at_ms - a.took_ms);
    mark(none, "hidden", found.length > 0);
    const colours = owners();
    const most = state.all ? MOST : FEW;
    say(more, state.all ? "Fewer" : `${count(found.length - FEW)} more`);
    mark(more, "hidden", found.length <= FEW);
    keep(list, found.slice(0, most), name_of, (task) => make(task, act), (line, task) => fill(line, task, undefined, colours));
  });
}

const is_wanted = (task) => wanted(task.text, task.user, task.node_id, task.kind, task.outcome, task.trace_id);

function make(task, act) {
  const name = name_of(task);
  const id = `detail-${task.node_id}-${task.span_id || task.task_id}`;
  const detail = el("div", { class: "detail", id, hidden: true });
  const unfold = el("button", { type: "button", class: "unfold", "aria-expanded": "false", "aria-controls": id },
    el("span", { class: "badge" }), el("span", { class: "sql one" }));
  unfold.addEventListener("click", () => {
    if (!state.unfolded.delete(name)) state.unfolded.add(name);
    changed();
  });
  const cancel = surely("Cancel", `Cancel statement ${task.task_id}`, () =>
    act("DELETE", `/v1/tasks/${encodeURIComponent(task.task_id)}`, "The statement was cancelled."));
  return el("li", { class: "task" },
    el("div", { class: "line" }, unfold, el("span", { class: "facts muted" }), el("span", { class: "time" }), cancel),
    el("div", { class: "legs", hidden: true }),
    detail);
}

function fill(item, task, legs, colours) {
  const [line, bars, detail] = item.children;
  const [unfold, facts, time, cancel] = line.children;
  const [badge, text] = unfold.children;
  const runs = task.outcome === "running";
  say(badge, runs ? task.kind : task.outcome);
  mark(badge, "class", `badge ${runs ? "run" : task.outcome === "done" ? "ok" : task.outcome === "cancelled" ? "warn" : "bad"}`);
  say(text, task.text);
  mark(text, "title", task.text.length > 90 ? task.text : null);
  const where = task.node_id === state.hello.node_id ? "" : task.node_id;
  say(facts, [where, task.user, runs ? "" : task.kind, task.rows ? some(task.rows, "row") : "", task.bytes ? size(task.bytes) : ""].filter(Boolean).join(" · "));
  const lasts = runs && where === "" ? Math.max(task.took_ms, Date.now() - state.skew - task.started_at_ms) : task.took_ms;
  say(time, took(lasts));
  mark(time, "title", whole(task.started_at_ms));
  const isMine = runs && where === "" && task.user === me() && mayAct();
  mark(cancel, "hidden", !isMine);
  progress(bars, legs, colours);
  const isOpen = state.unfolded.has(name_of(task));
  mark(unfold, "aria-expanded", String(isOpen));
  mark(detail, "hidden", !isOpen);
  if (isOpen) unfolded(detail, task, where, colours, lasts);
}

/** One bar a leg: it fills when the leg has ended; its words say what it gave so far. */
function progress(bars, legs, colours) {
  mark(bars, "hidden", !legs?.length);
  if (!legs?.length) return;
  const ended = legs.filter((leg) => leg.ended).length;
  mark(bars, "role", "progressbar");
  mark(bars, "aria-valuemin", 0);
  mark(bars, "aria-valuemax", legs.length);
  mark(bars, "aria-valuenow", ended);
  mark(bars, "aria-label", `${ended} of ${some(legs.length, "leg")} ended`);
  const merge = ended === legs.length ? [{ fragment: "", executor_id: MERGE }] : [];
  keep(bars, [...legs, ...merge], (leg) => `${leg.fragment} ${leg.executor_id}`, () => el("span", { class: "leg" }), (bar, leg) => {
    if (leg.executor_id === MERGE) {
      mark(bar, "class", "leg none");
      say(bar, "merging what they gave");
      return;
    }
    const number = colours.get(leg.executor_id);
    mark(bar, "class", `leg ${number === undefined ? "none" : `o${number % 8}`}${leg.ended ? " ended" : leg.rows ? " gives" : ""}`);
    say(bar, `${leg.executor_id} ${leg.ended || leg.rows ? some(leg.rows, "row") : "…"}`);
    mark(bar, "title", `${leg.fragment} at ${leg.executor_id}: ${some(leg.rows, "row")}, ${size(leg.bytes)}, ${took(leg.took_ms)}${leg.ended ? "" : " so far"}`);
  });
}

function unfolded(detail, task, where, colours, lasts) {
  if (!detail.firstElementChild) {
    detail.append(el("pre", { class: "sql" }), el("p", { class: "bad" }), el("p", { class: "muted facts" }), el("div", { class: "plan" }));
  }
  const [text, error, facts, drawn] = detail.children;
  say(text, detail.text ?? task.text);
  say(error, task.error_message);
  mark(error, "hidden", !task.error_message);
  say(facts, [
    `at ${task.node_id}`, task.user && `by ${task.user}`, task.engine && `engine ${task.engine}`, `began ${moment(task.started_at_ms)}`,
    `task ${task.task_id.slice(0, 8)}`, task.trace_id && `trace ${task.trace_id}`,
  ].filter(Boolean).join(" · "));
  if (where) {
    say(drawn, `Its plan is known at ${where}: open the page of that scheduler.`);
    return;
  }
  look(detail, task);
  if (detail.plan) plan(drawn, detail.plan, task, colours, lasts);
  else say(drawn, detail.said ?? "");
}

/** Ask for the plan, where there is one: of what runs again and again, of what has ended once more. */
async function look(detail, task) {
  const isOver = task.outcome !== "running";
  if (detail.asking || detail.isLast || Date.now() - (detail.asked ?? 0) < ASK_AGAIN_MS) return;
  const isCut = isOver && task.text.length >= CUT && !detail.text;
  if (!task.planned) detail.said = without_plan(task, isOver);
  if (!task.planned && !isCut) {
    detail.isLast = isOver;
    return;
  }
  detail.asking = true;
  detail.asked = Date.now();
  try {
    if (isCut) {
      const found = (await ask("/v1/tasks")).find((one) => one.span_id === task.span_id);
      detail.text = found?.text;
    }
    if (task.planned) detail.plan = await ask(`/v1/tasks/${encodeURIComponent(task.task_id)}/plan`);
  } catch (error) {
    if (!detail.plan) detail.said = error.message;
  } finally {
    detail.isLast = isOver;
    detail.asking = false;
    changed();
  }
}

function without_plan(task, isOver) {
  if (!isOver) return "It has no plan yet.";
  if (!["statement", "query", "job"].includes(task.kind)) return "What of it has a plan is a task of its own, of the same trace.";
  if (task.user !== me() && state.hello.kind === "client") return "Its plan is shown to its own client.";
  return "It has no plan: it needed none, ended before it had one, or later statements have taken its place.";
}
