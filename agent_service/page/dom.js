/**
 * Elements made from data. A text becomes a text node, always: nothing on this page is ever parsed as markup, so what a
 * model or a tool wrote can be shown without a thought. Styles come from style sheets, behaviour from listeners.
 */

const LINKS = /^(#|blob:|https?:\/\/)/i;
const REFUSED = /^(on.*|style|srcdoc|formaction)$/i;
const FOCUSABLE = "a[href], button, input, select, textarea, summary, [tabindex]";
const SVG = "http://www.w3.org/2000/svg";
const shown = new WeakMap();

/** An element: h("p.quiet", {title}, "text", node, …). `on` are listeners by event; null children are left out. */
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

/** Let `parent` have these children and no others. */
export function fill(parent, ...children) {
  parent.replaceChildren(...nodes(children));
  return parent;
}

/** The first `lines` lines of `element`; a button shows the rest, where there is any. */
export function folded(element, lines) {
  if (element.textContent.length < 80 * lines && element.textContent.split("\n").length <= lines) return element;
  element.classList.add("clamped");
  element.style.setProperty("--lines", lines);
  const more = h("button.link", { type: "button", on: { click: () => (element.classList.remove("clamped"), more.remove()) } }, "Show all");
  return h("div", null, element, more);
}

/** A drawing of 16 by 16, in the colour of its text; its `paths` are ours. Programs that read aloud pass over it. */
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
 * Show `items` as the children of `parent`, in order, and touch only what has changed: a node stays while what it shows
 * is the same, so focus, selection and scrolling stay too. `key` names an item, `render` makes its node.
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

/** Put `made` in the place of `old`; what had the focus by its place in it has it again. */
function swap(old, made) {
  const places = (node) => [node, ...node.querySelectorAll("*")].filter((one) => one.matches(FOCUSABLE));
  const place = places(old).indexOf(document.activeElement);
  old.replaceWith(made);
  if (place >= 0) places(made)[place]?.focus({ preventScroll: true });
}
