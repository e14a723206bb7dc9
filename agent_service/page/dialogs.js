/** Forms and overlays as <dialog> elements: Esc closes them, and the focus stays inside. */

import { fill, h } from "./dom.js";
import { icon } from "./icons.js";

let number = 0;

/** Shows `body` over the page. Calls `closed` once it is removed. Returns {dialog, close()}. */
export function overlay(title, body, { kind = "box", closed = () => {} } = {}) {
  const name = `dialog-${++number}`;
  const close = () => dialog.close();
  const head = h("header.dialog-head", null, h("h2", { id: name, tabindex: -1, autofocus: true }, title), quietButton("Close", close, "close"));
  const dialog = h("dialog", { class: kind, "aria-labelledby": name }, head, h("div.dialog-body", null, body));
  dialog.addEventListener("click", (event) => event.target === dialog && close());
  dialog.addEventListener("close", () => {
    dialog.remove();
    closed();
  });
  document.body.append(dialog);
  dialog.showModal();
  return { dialog, close };
}

/** An icon button with the accessible name `label`. */
export function quietButton(label, pressed, drawing) {
  return h("button.quiet-button", { type: "button", "aria-label": label, title: label, on: { click: pressed } }, icon(drawing));
}

/**
 * Asks before an action. `text` says what will happen. `act` gets the values of `fields`; the form shows the message of an
 * error that it throws. Resolves to the result of `act`, or to null if the person leaves.
 */
export function confirm({ title, text, fields = [], action, danger = false, act }) {
  return new Promise((resolve) => {
    let result = null;
    const trouble = h("p.trouble", { role: "alert" });
    const go = h(danger ? "button.danger" : "button.primary", { type: "submit" }, action);
    const leave = h("button", { type: "button", on: { click: () => shown.close() } }, "Not now");
    const form = h("form.stack", { novalidate: true }, h("p", null, text), fields.map((one) => one.node), trouble, h("div.buttons", null, go, leave));
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      go.disabled = true;
      fill(trouble);
      try {
        result = (await act(Object.fromEntries(fields.map((one) => [one.name, one.value()])))) ?? true;
        shown.close();
      } catch (error) {
        fill(trouble, error.message);
      }
      go.disabled = false;
    });
    const shown = overlay(title, form, { closed: () => resolve(result) });
    fields[0]?.focus();
  });
}

/** A field of a form: {name, node, value(), focus()}. `kind` is an input type, "area" for long texts, or "choice". */
export function field(name, label, { kind = "text", hint = "", choices = [], value = "", ...attributes } = {}) {
  const id = `field-${++number}`;
  const told = hint ? { "aria-describedby": `${id}-hint` } : {};
  const input = inputOf(kind, { id, name, ...told, ...attributes }, choices);
  if (value !== "") input.value = value;
  const node = h("div.field", null, h("label", { for: id }, label), input, hint && h("p.hint", { id: `${id}-hint` }, hint));
  return { name, node, input, value: () => input.value.trim(), focus: () => input.focus() };
}

function inputOf(kind, attributes, choices) {
  if (kind === "area") return h("textarea", { rows: 3, ...attributes });
  if (kind === "choice") return h("select", attributes, choices.map(([key, text]) => h("option", { value: key }, text)));
  return h("input", { type: kind, autocomplete: "off", ...attributes });
}

/** Announces a text to screen readers without moving the focus. */
export function say(text) {
  document.getElementById("said").textContent = text;
}
