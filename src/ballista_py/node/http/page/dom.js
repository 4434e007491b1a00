// Elements, and nothing but text in them: what comes from the cluster never becomes markup.

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes; `on…` are listeners, `class` a list of words, children elements or texts. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same of SVG. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS(SVG, tag), attributes, children);
}

function filled(made, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

/** Set a text, if it is another one: what a reader has selected stays selected. */
export function say(element, text) {
  const said = String(text);
  if (element.textContent !== said) element.textContent = said;
}

/** Set or remove an attribute, if that changes anything. */
export function mark(element, name, value) {
  if (value === null || value === undefined || value === false) {
    if (element.hasAttribute(name)) element.removeAttribute(name);
    return;
  }
  const said = value === true ? "" : String(value);
  if (element.getAttribute(name) !== said) element.setAttribute(name, said);
}

/** Set a length or number of the style, as a variable that the style sheet reads. */
export function measure(element, name, value) {
  if (element.style.getPropertyValue(name) !== String(value)) element.style.setProperty(name, value);
}

/**
 * Let `parent` hold one element for each item, in their order. An item that was there keeps its element, so focus,
 * selection and what is unfolded stay: `make` makes one, `update` fills it each time.
 */
export function keep(parent, items, key, make, update) {
  const known = parent.kept ?? new Map();
  const next = new Map();
  let place = parent.firstElementChild;
  for (const item of items) {
    const name = key(item);
    if (next.has(name)) continue;
    const element = known.get(name) ?? make(item);
    next.set(name, element);
    if (element !== place) parent.insertBefore(element, place);
    else place = place.nextElementSibling;
    update(element, item);
  }
  for (const [name, element] of known) if (!next.has(name)) element.remove();
  parent.kept = next;
}

/** A button that is pressed twice to act, so that no slip of the hand ends anything. */
export function surely(label, title, act) {
  let armed = 0;
  const button = el("button", { type: "button", class: "danger", title });
  const rest = () => {
    clearTimeout(armed);
    armed = 0;
    button.classList.remove("armed");
    say(button, label);
  };
  button.addEventListener("click", async () => {
    if (!armed) {
      armed = setTimeout(rest, 5000);
      button.classList.add("armed");
      say(button, `Really ${label.toLowerCase()}?`);
      return;
    }
    rest();
    button.disabled = true;
    try {
      await act();
    } finally {
      button.disabled = false;
    }
  });
  rest();
  return button;
}
