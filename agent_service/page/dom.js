/**
 * Makes elements from data. Texts always become text nodes: the page parses nothing as markup, so texts of models and
 * tools are safe to show. Styles come from style sheets, behaviour from listeners.
 */

const LINKS = /^(#|blob:|https?:\/\/)/i;
const REFUSED = /^(on.*|style|srcdoc|formaction)$/i;
const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";
const SVG = "http://www.w3.org/2000/svg";
const shown = new WeakMap();

/** Makes an element: h("p.quiet", {title}, "text", node, …). `on`: listeners by event. It skips null children. */
export function h(name, attributes, ...children) {
  const [tag, ...classes] = name.split(".");
  const element = document.createElement(tag);
  if (classes.length) element.className = classes.join(" ");
  for (const [key, value] of Object.entries(attributes ?? {})) set(element, key, value);
  element.append(...nodes(children));
  return element;
}

function set(element, name, value) {
  if (value === null || value === undefined || value === false) return;
  if (name === "on") {
    for (const [event, listener] of Object.entries(value)) element.addEventListener(event, listener);
    return;
  }
  if (REFUSED.test(name)) throw new TypeError(`the attribute ${name} is not for data`);
  if ((name === "href" || name === "src") && !LINKS.test(value)) throw new TypeError(`no link to ${value}`);
  element.setAttribute(name, value === true ? "" : String(value));
}

function nodes(children) {
  return children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false);
}

/** Replaces the children of `parent`. */
export function fill(parent, ...children) {
  parent.replaceChildren(...nodes(children));
  return parent;
}

/** Shows the first `lines` lines of `element`, and a button for the rest. */
export function folded(element, lines) {
  if (element.textContent.length < 80 * lines && element.textContent.split("\n").length <= lines) return element;
  element.classList.add("clamped");
  element.style.setProperty("--lines", lines);
  const more = h("button.link", { type: "button", on: { click: () => (element.classList.remove("clamped"), more.remove()) } }, "Show all");
  return h("div", null, element, more);
}

/** A drawing of 16 by 16 in the colour of the text, hidden from screen readers. Only constant `paths` are allowed. */
export function drawing(paths, name) {
  const svg = document.createElementNS(SVG, "svg");
  const attributes = { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true", class: `icon ${name}` };
  for (const [key, value] of Object.entries(attributes)) svg.setAttribute(key, value);
  for (const { d, ...more } of paths) {
    const path = document.createElementNS(SVG, "path");
    path.setAttribute("d", d);
    for (const [key, value] of Object.entries(more)) path.setAttribute(key, value);
    svg.append(path);
  }
  return svg;
}

/**
 * Renders `items` as the children of `parent`, in order. It keeps nodes whose items are unchanged, and with them focus,
 * selection and scrolling. `key` names an item, `render` makes its node.
 */
export function list(parent, items, key, render) {
  const known = new Map([...parent.children].map((node) => [node.dataset.key, node]));
  items.forEach((item, place) => {
    const name = String(key(item));
    const node = current(known.get(name), item, name, render);
    known.delete(name);
    if (parent.children[place] !== node) parent.insertBefore(node, parent.children[place] ?? null);
  });
  for (const node of known.values()) node.remove();
}

function current(old, item, name, render) {
  const content = JSON.stringify(item);
  if (old && shown.get(old) === content) return old;
  const made = render(item);
  made.dataset.key = name;
  shown.set(made, content);
  if (old) swap(old, made);
  return made;
}

/** Replaces `old` by `made` and restores the focus by position. */
function swap(old, made) {
  const places = (node) => [node, ...node.querySelectorAll("*")].filter((one) => one.matches(FOCUSABLE));
  const place = places(old).indexOf(document.activeElement);
  old.replaceWith(made);
  if (place >= 0) places(made)[place]?.focus({ preventScroll: true });
}
