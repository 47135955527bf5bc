import { get } from "./api.js";
import { fill, h, setText } from "./dom.js";
import { clockTime, fullTime } from "./formatting.js";

const SOURCES = { events: "events", command: "commands", service: "services", agent: "agents", code: "code", terminal: "terminals" };
const DEFAULT_SOURCES = ["events", "command", "service", "agent", "code"];
const MAX_LINES = 2000;
const MAX_PENDING = 200_000; // characters: output can arrive faster than it can be rendered
const LONGEST_LINE = 4000;
const NEARLY_AT_END_PX = 24;
// Colour and cursor sequences of terminals, which are removed.
const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])|[\x00-\x08\x0b\x0c\x0e-\x1f]/g;

/** A sandbox's log: scrolls with new lines until the user scrolls up, and keeps the latest lines. */
export class LogView {
  constructor(path, changed) {
    this._path = path;
    this.sources = new Set(DEFAULT_SOURCES);
    this._lines = h("div", { class: "lines", role: "log", tabindex: 0, "aria-label": "Log", onscroll: () => this._scrolled() });
    this._follow = h("button", { type: "button", class: "quiet", onclick: () => this._setFollowing(!this._following) });
    this.element = h("section", { class: "log" },
      h("div", { class: "bar" }, h("h2", {}, "Log"), h("div", { class: "sources" }, ...Object.keys(SOURCES).map(name => this._choice(name, changed))), this._follow),
      this._lines);
    this._setFollowing(true);
    this.clear();
  }

  clear() {
    this._waiting = [];
    this._size = 0;
    this._skipped = 0;
    this._open = new Map();
    this._commands = new Map();
    fill(this._lines, h("p", { class: "hint" }, "No log entries yet."));
    this._isEmpty = true;
  }

  shows(source) {
    return this.sources.has(source);
  }

  add(record) {
    this._waiting.push(record);
    this._size += sizeOf(record);
    while (this._waiting.length > 1 && (this._waiting.length > MAX_LINES || this._size > MAX_PENDING)) {
      this._size -= sizeOf(this._waiting.shift());
      this._skipped += 1;
    }
    this._followLater();
  }

  _choice(name, changed) {
    const box = h("input", { type: "checkbox", checked: this.sources.has(name), onchange: () => {
      if (box.checked) this.sources.add(name);
      else this.sources.delete(name);
      changed();
    } });
    return h("label", {}, box, SOURCES[name]);
  }

  _setFollowing(following) {
    this._following = following;
    this._follow.setAttribute("aria-pressed", String(following));
    this._followLater();
  }

  // While the user has scrolled up, the view stays; new lines are held back and counted.
  _followLater() {
    const waiting = this._waiting?.length ?? 0;
    setText(this._follow, this._following ? "Following" : waiting ? `Follow (${waiting} new)` : "Follow");
    if (!this._following || this._frame) return;
    this._frame = requestAnimationFrame(() => {
      this._frame = null;
      this._flush();
    });
  }

  _scrolled() {
    const { scrollHeight, scrollTop, clientHeight } = this._lines;
    const isAtEnd = scrollHeight - scrollTop - clientHeight < NEARLY_AT_END_PX;
    if (isAtEnd !== this._following) this._setFollowing(isAtEnd);
  }

  _flush() {
    if (this._waiting.length > 0 && this._isEmpty) fill(this._lines);
    this._isEmpty &&= this._waiting.length === 0;
    if (this._skipped) this._append({ kind: "gap" }, `[${this._skipped} records skipped: output too fast]`);
    this._skipped = this._size = 0;
    this._waiting.splice(0).forEach(record => this._write(record));
    this._trim();
    this._lines.scrollTop = this._lines.scrollHeight;
  }

  _trim() {
    if (this._lines.childElementCount <= MAX_LINES) return;
    while (this._lines.childElementCount >= MAX_LINES) this._lines.firstElementChild.remove();
    this._lines.prepend(new Line({ kind: "gap" }, "[older lines are no longer shown]").element);
  }

  _append(written, text) {
    const line = new Line(written, text);
    this._lines.append(line.element);
    return line;
  }

  _write(record) {
    const written = { at: record.at, source: label(record), kind: record.type };
    if (record.type === "stdout" || record.type === "stderr") this._writeText(record, written);
    else if (record.type === "started") this._writeStart(record, written);
    else if (record.type === "gap") this._append(written, missing(record));
    else if (record.type === "result") this._writeResult(record, written);
    else if (record.type === "error") this._writeLines({ ...written, kind: "stderr" }, record.error.traceback || `${record.error.name}: ${record.error.value}`);
    else this._append({ ...written, kind: "mark" }, record.type === "exit" ? outcome(record) : event(record));
  }

  // A record may end in the middle of a line.
  _writeText(record, written) {
    const stream = `${record.command_id} ${record.type}`;
    const [first, ...rest] = textOf(record).replaceAll("\r\n", "\n").split("\n");
    let open = this._open.get(stream);
    if (open?.element.isConnected) open.extend(first);
    else open = this._append(written, first);
    const shown = rest.slice(-MAX_LINES);
    shown.forEach((text, index) => {
      const isBegun = text !== "" || index < shown.length - 1;
      open = isBegun ? this._append(written, text) : null;
    });
    this._open.set(stream, open);
  }

  _writeLines(written, text) {
    text.trimEnd().split("\n").slice(-MAX_LINES).forEach(line => this._append(written, line));
  }

  _writeResult({ data, sizes }, written) {
    const kind = ["png", "jpeg"].find(name => name in data);
    if (kind === undefined) return this._writeLines(written, data.text ?? `[${Object.keys(sizes).join(", ")}]`);
    this._append(written, "").show(h("img", { src: `data:image/${kind};base64,${data[kind].trim()}`, alt: data.text ?? "Figure" }));
  }

  _writeStart(record, written) {
    const started = this._append({ ...written, kind: "mark" }, "started");
    const kinds = { command: "commands", terminal: "terminals" };
    if (record.source === "code") {
      get(`${this._path}/code/${record.command_id}`).then(({ code }) => started.setText(`>>> ${code}`), () => {});
    }
    if (!(record.source in kinds)) return;
    get(`${this._path}/${kinds[record.source]}/${record.command_id}`).then(
      ({ cmd }) => started.setText(`$ ${cmd ?? "a shell"}`),
      () => {}, // the command has expired; "started" is shown without it
    );
  }
}

/** A line of the log; output can be appended to it. */
class Line {
  constructor({ at, source = "", kind }, text) {
    this._text = h("span", { class: "text" });
    this.element = h("div", { class: `line ${kind}` },
      h("time", at ? { datetime: at, title: fullTime(at) } : {}, at ? clockTime(at) : ""),
      h("span", { class: "source" }, source),
      this._text);
    this.setText(text);
  }

  setText(text) {
    this._raw = text.slice(0, LONGEST_LINE);
    // A carriage return restarts the line, as in progress bars.
    const shown = this._raw.replace(ESCAPES, "").replace(/\r+$/, "");
    setText(this._text, shown.slice(shown.lastIndexOf("\r") + 1) + (text.length > LONGEST_LINE ? "…" : ""));
  }

  show(element) {
    fill(this._text, element);
  }

  extend(text) {
    this.setText(this._raw + text);
  }
}

function label({ source, name, command_id }) {
  if (source === "events" || source === undefined) return "";
  return name ?? `${source} ${command_id.slice(-4)}`;
}

function sizeOf({ text, base64, sizes }) {
  return (text ?? base64 ?? "").length + Object.values(sizes ?? {}).reduce((sum, size) => sum + size, 0);
}

function textOf({ text, base64 }) {
  return text ?? new TextDecoder().decode(Uint8Array.from(atob(base64), letter => letter.charCodeAt(0)));
}

function missing({ size, stream, reason, oldest }) {
  if (oldest !== undefined) return "[older entries have been deleted]";
  const of = stream ? ` of ${stream}` : "";
  return size === null ? `[output${of} may have been lost${reason ? `: ${reason}` : ""}]` : `[${size} bytes${of} lost]`;
}

function outcome({ state, exit_code, reason }) {
  const code = exit_code === null || exit_code === undefined ? "" : ` with ${exit_code}`;
  return `${state}${code}${reason ? `: ${reason}` : ""}`;
}

function event({ type, reason }) {
  return `${type.replace(/^sandbox\./, "").replaceAll("_", " ")}: ${reason ?? ""}`;
}
