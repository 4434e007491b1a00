// What every part of the page has: a heading that is reached from the top, what went wrong, and its content.

import { el } from "./dom.js";

/** A part of the page over `parts` of the events; `draw` fills it. With `own` it is for clients alone. */
export function view(id, title, parts, content, draw, { aside = null, own = false } = {}) {
  const trouble = el("p", { class: "notice", role: "alert", hidden: true });
  const section = el("section", { id, "aria-labelledby": `${id}-title`, tabindex: "-1" },
    el("div", { class: "head" }, el("h2", { id: `${id}-title` }, title), aside),
    trouble,
    ...content);
  return { section, parts, trouble, draw, own };
}

/** Says that there is nothing, where there is nothing. */
export function nothing(text) {
  return el("p", { class: "nothing" }, text);
}

/** Let the page be drawn anew: something was unfolded or chosen. */
export function changed() {
  document.dispatchEvent(new CustomEvent("changed"));
}
