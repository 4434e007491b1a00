// The jobs of whoever looks.

import { el, keep, mark, say, surely } from "./dom.js";
import { mayAct, part, wanted } from "./state.js";
import { nothing, view } from "./view.js";
import { moment, size, some, took, whole } from "./words.js";

const KINDS = { PENDING: "", RUNNING: "run", SUCCEEDED: "ok", FAILED: "bad", CANCELLED: "warn", CLOSED: "" };
const OPEN = ["PENDING", "RUNNING"];

export function jobs(act) {
  const list = el("ol", { class: "list" });
  const none = nothing("No jobs of yours. POST /v1/jobs queues one.");
  return view("jobs", "Your jobs", ["jobs"], [list, none], () => {
    const found = part("jobs", []).filter((job) => wanted(job.job_id, job.name, job.sql, job.state));
    mark(none, "hidden", found.length > 0);
    keep(list, found, (job) => job.job_id, (job) => make(job, act), fill);
  }, { own: true });
}

function make(job, act) {
  const cancel = surely("Cancel", `Cancel job ${job.job_id}`, () => act("DELETE", `/v1/jobs/${encodeURIComponent(job.job_id)}`, "The job was cancelled."));
  return el("li", { class: "job" },
    el("span", { class: "badge" }),
    el("div", { class: "grow" }, el("p", { class: "sql one" }), el("p", { class: "muted facts" }), el("p", { class: "bad" })),
    cancel);
}

function fill(line, job) {
  const [badge, middle, cancel] = line.children;
  const [sql, facts, error] = middle.children;
  say(badge, job.state.toLowerCase());
  mark(badge, "class", `badge ${KINDS[job.state] ?? ""}`);
  say(sql, job.sql);
  mark(sql, "title", job.sql);
  const until = job.ended_at_ms || Date.now();
  const parts = [
    job.name, job.job_id.slice(0, 8),
    job.scheduler && `at ${job.scheduler}${job.attempt > 1 ? `, attempt ${job.attempt}` : ""}`,
    job.started_at_ms ? took(Math.max(0, until - job.started_at_ms)) : `since ${moment(job.submitted_at_ms)}`,
    job.rows ? some(job.rows, "row") : "", job.bytes ? size(job.bytes) : "", job.chunks ? some(job.chunks, "chunk") : "",
  ];
  say(facts, parts.filter(Boolean).join(" · "));
  mark(facts, "title", `submitted ${whole(job.submitted_at_ms)}`);
  say(error, job.error ? `${job.error.code}: ${job.error.message}` : "");
  mark(error, "hidden", !job.error);
  mark(cancel, "hidden", !OPEN.includes(job.state) || !mayAct());
}
