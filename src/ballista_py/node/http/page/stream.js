// Questions to this node, and its events: by fetch, because only that sends a token in a header.

const KEY = "ballista-token";
const AGAIN_MS = [500, 1000, 2000, 5000];
const SILENT_MS = 15_000;

export class NotAllowed extends Error {}

export const token = {
  get: () => sessionStorage.getItem(KEY) ?? "",
  set: (value) => sessionStorage.setItem(KEY, value),
  forget: () => sessionStorage.removeItem(KEY),
};

function headers() {
  const known = token.get();
  return known ? { Authorization: `Bearer ${known}` } : {};
}

async function told(reply) {
  let said = `${reply.status} ${reply.statusText}`;
  try {
    said = (await reply.json()).error ?? said;
  } catch {
    // no JSON: the status is all there is to say
  }
  return reply.status === 401 ? new NotAllowed(said) : new Error(said);
}

/** What a path answers, as JSON. Throws what went wrong, in the node's words. */
export async function ask(path, method = "GET") {
  const reply = await fetch(path, { method, headers: headers(), cache: "no-store", credentials: "omit" });
  if (!reply.ok) throw await told(reply);
  return reply.json();
}

/**
 * Listen until the node says that this token does not do. `on.event(name, data)` is told what came, `on.link(text,
 * state)` how the connection is; what breaks off is begun again.
 */
export async function listen(on) {
  let tries = 0;
  for (;;) {
    try {
      await listenOnce((name, data) => {
        tries = 0;
        if (name === "bye") throw new NotAllowed(data.error);
        on.event(name, data);
      });
      on.link("the node ended the connection", "lost");
    } catch (error) {
      if (error instanceof NotAllowed) throw error;
      on.link(error instanceof TypeError ? "no connection" : error.message, "lost");
    }
    await new Promise((then) => setTimeout(then, AGAIN_MS[Math.min(tries, AGAIN_MS.length - 1)]));
    tries += 1;
  }
}

async function listenOnce(event) {
  const stop = new AbortController();
  let silent = 0;
  const heard = () => {
    clearTimeout(silent);
    silent = setTimeout(() => stop.abort(new Error("the node says nothing")), SILENT_MS);
  };
  heard();
  try {
    const reply = await fetch("/v1/events", {
      headers: headers(), cache: "no-store", credentials: "omit", signal: stop.signal,
    });
    if (!reply.ok) throw await told(reply);
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      heard();
      const blocks = (rest + value).split("\n\n");
      rest = blocks.pop();
      for (const block of blocks) {
        const [name, data] = block.split("\n");
        event(name.slice("event: ".length), JSON.parse(data.slice("data: ".length)));
      }
    }
  } finally {
    clearTimeout(silent);
    stop.abort();
  }
}
