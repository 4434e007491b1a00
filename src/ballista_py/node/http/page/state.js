// What the page knows: the parts as they came, what was unfolded, and who looks.

const nothing = () => ({
  hello: { node_id: "", role: "", parts: [], client: "", kind: null },
  parts: {},
  unfolded: new Set(),
  chosen: null, // the executor whose partitions stand out
  filter: "",
  all: false, // whether all is shown that ended
  gone: new Map(), // nodes that were there since the page was opened: id -> { node, at }
  skew: 0, // this clock minus the node's, ms
});

export const state = nothing();

/** Know nothing any more. */
export function forgetState() {
  Object.assign(state, nothing());
}

/** A part, or what stands for it while it has not come or could not be made. */
export function part(name, otherwise) {
  const found = state.parts[name];
  return found === undefined || isTrouble(found) ? otherwise : found;
}

export function isTrouble(value) {
  return value !== null && typeof value === "object" && !Array.isArray(value) && "error" in value && "code" in value;
}

/** Whether one of these texts has what is looked for. */
export function wanted(...texts) {
  return !state.filter || texts.some((text) => String(text ?? "").toLowerCase().includes(state.filter));
}

/** The name by which the node knows who looks, as tasks have it. */
export function me() {
  return state.hello.kind === "client" ? state.hello.client : "";
}

export const mayAct = () => state.hello.kind !== "viewer" && state.hello.role === "scheduler";

/** The executors, each with its number, which is its colour as well. */
export function owners() {
  const nodes = part("nodes", { nodes: [] }).nodes.filter((node) => node.role === "executor");
  const names = new Set([...nodes.map((node) => node.node_id), ...[...state.gone.values()].filter((one) => one.node.role === "executor").map((one) => one.node.node_id)]);
  return new Map([...names].sort((a, b) => a.localeCompare(b, "en", { numeric: true })).map((name, index) => [name, index]));
}

/** Remember who left since the last look. */
export function noteGone(before, now) {
  const here = new Set(now.map((node) => node.instance_id));
  for (const node of before) {
    if (!here.has(node.instance_id)) state.gone.set(node.node_id, { node, at: Date.now() });
  }
  for (const node of now) state.gone.delete(node.node_id);
  for (const [name, one] of state.gone) {
    if (Date.now() - one.at > 600_000 || state.gone.size > 12) state.gone.delete(name);
  }
}
