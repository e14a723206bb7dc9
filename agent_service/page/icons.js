/** Icons. Each state and outcome has its own shape, so no one needs the colours. */

import { drawing } from "./dom.js";

const RING = "M8 1.75a6.25 6.25 0 1 1 0 12.5a6.25 6.25 0 0 1 0-12.5z";
const stroke = { fill: "none", stroke: "currentColor", "stroke-width": "1.6", "stroke-linecap": "round", "stroke-linejoin": "round" };
const solid = { fill: "currentColor" };
const cut = { ...stroke, stroke: "var(--surface)", "stroke-width": "1.8" };

const PATHS = {
  queued: [{ d: RING, ...stroke, "stroke-dasharray": "2.4 2.5" }],
  running: [{ d: RING, ...stroke, opacity: "0.25" }, { d: "M8 1.75a6.25 6.25 0 0 1 6.25 6.25", ...stroke, class: "turning" }],
  paused: [{ d: RING, ...stroke }, { d: "M6.4 5.6v4.8M9.6 5.6v4.8", ...stroke }],
  done: [{ d: RING, ...solid }, { d: "M5.2 8.3l2 2l3.7-4.2", ...cut }],
  escalated: [{ d: "M8 1.9l6.4 11.6H1.6z", ...stroke }, { d: "M8 6.3v3.2M8 11.4v.1", ...stroke }],
  failed: [{ d: "M5.2 1.5h5.6l3.7 3.7v5.6l-3.7 3.7H5.2l-3.7-3.7V5.2z", ...solid }, { d: "M5.9 5.9l4.2 4.2M10.1 5.9l-4.2 4.2", ...cut }],
  cancelled: [{ d: RING, ...stroke }, { d: "M3.8 12.2l8.4-8.4", ...stroke }],
  waiting: [{ d: RING, ...stroke }, { d: "M8 4.6V8l2.3 1.5", ...stroke }],
  again: [{ d: "M13 5.6a5.6 5.6 0 1 0 .6 3.6M13.4 2.6v3.2h-3.2", ...stroke }],
  refused: [{ d: RING, ...stroke }, { d: "M5 8h6", ...stroke }],
  person: [{ d: "M8 7.6a2.7 2.7 0 1 0 0-5.4a2.7 2.7 0 0 0 0 5.4zM2.8 13.8c.5-2.7 2.5-4.1 5.2-4.1s4.7 1.4 5.2 4.1", ...stroke }],
  letter: [{ d: "M1.9 3.6h12.2v8.8H1.9zM2.2 4l5.8 4.6L13.8 4", ...stroke }],
  doubt: [{ d: RING, ...stroke }, { d: "M6.2 6.3c.2-1.1.9-1.6 1.8-1.6c1.1 0 1.9.7 1.9 1.6c0 1.4-1.9 1.5-1.9 2.7M8 11.4v.1", ...stroke }],
  met: [{ d: "M2.6 2.6h10.8v10.8H2.6z", ...solid }, { d: "M5.2 8.2l2 2l3.7-4.1", ...cut }],
  unmet: [{ d: "M2.6 2.6h10.8v10.8H2.6z", ...stroke }],
  none: [{ d: "M4.5 8h7", ...stroke }],
  auto: [{ d: RING, ...stroke }, { d: "M8 1.75a6.25 6.25 0 0 1 0 12.5z", ...solid }],
  light: [{ d: "M8 5.2a2.8 2.8 0 1 1 0 5.6a2.8 2.8 0 0 1 0-5.6zM8 1.2v1.3M8 13.5v1.3M1.2 8h1.3M13.5 8h1.3M3.2 3.2l.9.9M11.9 11.9l.9.9M3.2 12.8l.9-.9M11.9 4.1l.9-.9", ...stroke }],
  dark: [{ d: "M13.6 9.6A6 6 0 0 1 6.4 2.4a6 6 0 1 0 7.2 7.2z", ...stroke }],
  help: [{ d: "M5.6 5.8c.2-1.6 1.2-2.4 2.5-2.4c1.5 0 2.5.9 2.5 2.3c0 2-2.6 2-2.6 4M8 12.4v.1", ...stroke }],
  close: [{ d: "M4 4l8 8M12 4l-8 8", ...stroke }],
  copy: [{ d: "M5.5 5.5h8v8h-8zM10.5 5.3V2.5h-8v8h2.8", ...stroke }],
  out: [{ d: "M6.5 3.5h-3v9h9v-3M9 2.8h4.2V7M13 3L7.6 8.4", ...stroke }],
  search: [{ d: "M7 2.5a4.5 4.5 0 1 1 0 9a4.5 4.5 0 0 1 0-9zM10.4 10.4l3.4 3.4", ...stroke }],
};

/** The icon of this name. */
export function icon(name) {
  return drawing(PATHS[name] ?? PATHS.none, name);
}
