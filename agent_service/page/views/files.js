/**
 * The files of a run. It shows the agent's pages as Markdown, and artifacts as text, Markdown or images, by their bytes.
 * Active content (HTML, SVG, PDF) appears as text or as a download only.
 */

import { bytes, call } from "../api.js";
import { save } from "../copying.js";
import { fill, h, list } from "../dom.js";
import { markdown } from "../markdown.js";
import { hashOf, here } from "../routes.js";
import { size } from "../words.js";
import { text } from "./values.js";

const LATER_MS = 1200;
const MOST_SHOWN = 2_000_000;
const GROUPS = [["Artifacts", (file) => file.path.startsWith("artifacts/")], ["Paper trail", (file) => !file.path.startsWith("artifacts/")]];
const PICTURES = [
  ["image/png", [0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a]], ["image/jpeg", [0xff, 0xd8, 0xff]],
  ["image/gif", [0x47, 0x49, 0x46, 0x38]], ["image/webp", [0x52, 0x49, 0x46, 0x46, null, null, null, null, 0x57, 0x45, 0x42, 0x50]],
];

/** One page that the agent writes. It is written a moment after a change of the run, so it is loaded once more. */
export class PagePart {
  constructor(run, path) {
    Object.assign(this, { run, path, node: h("div.paper"), known: null });
  }

  async refresh() {
    await this.load();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.load(), LATER_MS);
  }

  async load() {
    const unwritten = (error) => (error.status === 404 ? new Uint8Array() : Promise.reject(error));
    const found = await this.run.page.tried(this.node, () => fileOf(this.run, this.path).catch(unwritten));
    const content = found && new TextDecoder().decode(found);
    if (content === this.known) return;
    this.known = content;
    if (found) fill(this.node, content ? [markdown(content), h("p", null, download(this.run, this.path))] : h("div.empty", null, h("p", null, "Not written yet.")));
  }

  close() {
    clearTimeout(this.timer);
  }
}

/** The artifacts, and the other files of the folder. */
export class FilesPart {
  constructor(run) {
    Object.assign(this, { run, urls: [] });
    this.groups = GROUPS.map(([title, fits]) => ({ fits, lines: h("ul.lines", { "aria-label": title }), title: h("h3", null, title) }));
    this.word = h("div");
    this.preview = h("div.preview");
    const [artifacts, trail] = this.groups.map(({ title, lines }) => [title, lines]);
    this.node = h("div.files-part", null, artifacts, this.preview, trail, this.word);
    this.moved = () => here().path[1] === run.id && this.showFile(here().query.get("file"));
    window.addEventListener("hashchange", this.moved);
  }

  async refresh() {
    const found = await this.run.page.tried(this.word, () => call(this.run.path("/workspace")));
    if (!found) return;
    this.files = found.files;
    fill(this.word, this.files.length ? null : h("div.empty", null, h("p", null, "No files yet.")));
    this.draw();
    this.moved();
  }

  draw() {
    const shown = (this.files ?? []).map((file) => ({ ...file, chosen: file.path === this.shownPath, run_id: this.run.id }));
    for (const { fits, lines, title } of this.groups) {
      const inside = shown.filter(fits);
      title.hidden = !inside.length;
      list(lines, inside, (file) => file.path, fileLine);
    }
  }

  async showFile(path) {
    if (path === this.shownPath) return;
    this.shownPath = path;
    this.draw();
    fill(this.preview);
    const file = path && this.files?.find((one) => one.path === path);
    if (!file) return;
    const head = h("header.preview-head", null, h("h3", null, path), download(this.run, path));
    const body = h("div", null, h("p.quiet", null, "Loading…"));
    fill(this.preview, head, body);
    this.preview.scrollIntoView({ block: "nearest" });
    if (file.size > MOST_SHOWN) fill(body, h("p.quiet", null, `${size(file.size)} are too much to be shown here: download it.`));
    else await this.run.page.tried(body, async () => fill(body, this.drawn(path, await fileOf(this.run, path))));
  }

  drawn(path, content) {
    const picture = PICTURES.find(([, magic]) => magic.every((byte, at) => byte === null || content[at] === byte));
    if (picture) return h("img", { src: this.address(content, picture[0]), alt: path });
    const found = decoded(content);
    if (found === null) return h("p.quiet", null, "This file cannot be shown here: download it.");
    return /\.(md|markdown)$/i.test(path) ? markdown(found) : text(found);
  }

  address(content, type) {
    const url = URL.createObjectURL(new Blob([content], { type }));
    this.urls.push(url);
    return url;
  }

  close() {
    window.removeEventListener("hashchange", this.moved);
    this.urls.forEach((url) => URL.revokeObjectURL(url));
  }
}

function fileLine(file) {
  const link = h("a.line.file", { href: hashOf(["runs", file.run_id, "files"], { file: file.path }), "data-line": true, "aria-current": file.chosen ? "true" : null },
    h("span.cell.what", null, file.path), h("span.cell.number", null, size(file.size)));
  return h("li", null, link);
}

const fileOf = (run, path) => bytes(run.path(`/workspace/${path.split("/").map(encodeURIComponent).join("/")}`));

/** The bytes as text; null if they are not text. */
function decoded(content) {
  if (content.includes(0)) return null;
  try {
    return new TextDecoder("utf-8", { fatal: true }).decode(content);
  } catch {
    return null;
  }
}

function download(run, path) {
  const name = path.split("/").at(-1);
  const word = h("span");
  const click = () => run.page.tried(word, async () => fill(word, save(name, await fileOf(run, path))));
  return [h("button", { type: "button", on: { click } }, `Download ${name}`), word];
}
