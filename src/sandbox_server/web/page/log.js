import { get } from "./api.js";
import { fill, h, say } from "./dom.js";
import { clockTime, fullTime } from "./formatting.js";

const SOURCES = { events: "events", command: "commands", service: "services", agent: "agents", terminal: "terminals" };
const USUAL = ["events", "command", "service", "agent"];
const MOST_LINES = 2000;
const MOST_WAITING = 200_000; // characters: a flood is told faster than it can be shown
const LONGEST_LINE = 4000;
const NEARLY_AT_END_PX = 24;
// Colours and movements of a terminal, which a log has no use for.
const ESCAPES = /\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\^_])|[\x00-\x08\x0b\x0c\x0e-\x1f]/g;

/** What is said in a sandbox, followed until somebody scrolls up; of very much the last lines. */
export class LogView {
  constructor(path, changed) {
    this._path = path;
    this.sources = new Set(USUAL);
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
    this._weight = 0;
    this._left = 0;
    this._open = new Map();
    this._commands = new Map();
    fill(this._lines, h("p", { class: "hint" }, "Nothing was said so far."));
    this._isEmpty = true;
  }

  shows(source) {
    return this.sources.has(source);
  }

  add(record) {
    this._waiting.push(record);
    this._weight += weightOf(record);
    while (this._waiting.length > 1 && (this._waiting.length > MOST_LINES || this._weight > MOST_WAITING)) {
      this._weight -= weightOf(this._waiting.shift());
      this._left += 1;
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

  // What is scrolled up to stays where it is: new lines wait, and are counted.
  _followLater() {
    const waiting = this._waiting?.length ?? 0;
    say(this._follow, this._following ? "Following" : waiting ? `Follow (${waiting} more)` : "Follow");
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
    if (this._left) this._append({ kind: "gap" }, `${this._left} records are left out here: they came too fast.`);
    this._left = this._weight = 0;
    this._waiting.splice(0).forEach(record => this._write(record));
    this._trim();
    this._lines.scrollTop = this._lines.scrollHeight;
  }

  _trim() {
    if (this._lines.childElementCount <= MOST_LINES) return;
    while (this._lines.childElementCount >= MOST_LINES) this._lines.firstElementChild.remove();
    this._lines.prepend(new Line({ kind: "gap" }, "What was said before is not shown any more.").element);
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
    else this._append({ ...written, kind: "mark" }, record.type === "exit" ? outcome(record) : event(record));
  }

  // What is written comes in pieces, which may end in the middle of a line.
  _writeText(record, written) {
    const stream = `${record.command_id} ${record.type}`;
    const [first, ...rest] = textOf(record).replaceAll("\r\n", "\n").split("\n");
    let open = this._open.get(stream);
    if (open?.element.isConnected) open.extend(first);
    else open = this._append(written, first);
    const shown = rest.slice(-MOST_LINES);
    shown.forEach((text, index) => {
      const isBegun = text !== "" || index < shown.length - 1;
      open = isBegun ? this._append(written, text) : null;
    });
    this._open.set(stream, open);
  }

  _writeStart(record, written) {
    const started = this._append({ ...written, kind: "mark" }, "started");
    const kinds = { command: "commands", terminal: "terminals" };
    if (!(record.source in kinds)) return;
    get(`${this._path}/${kinds[record.source]}/${record.command_id}`).then(
      ({ cmd }) => started.tell(`$ ${cmd ?? "a shell"}`),
      () => {}, // it is not kept any more: that it was started says enough
    );
  }
}

/** A line of the log, which may get longer as more of it comes. */
class Line {
  constructor({ at, source = "", kind }, text) {
    this._text = h("span", { class: "text" });
    this.element = h("div", { class: `line ${kind}` },
      h("time", at ? { datetime: at, title: fullTime(at) } : {}, at ? clockTime(at) : ""),
      h("span", { class: "source" }, source),
      this._text);
    this.tell(text);
  }

  tell(text) {
    this._raw = text.slice(0, LONGEST_LINE);
    // A carriage return begins the line anew, as progress bars do.
    const shown = this._raw.replace(ESCAPES, "").replace(/\r+$/, "");
    say(this._text, shown.slice(shown.lastIndexOf("\r") + 1) + (text.length > LONGEST_LINE ? "…" : ""));
  }

  extend(text) {
    this.tell(this._raw + text);
  }
}

function label({ source, name, command_id }) {
  if (source === "events" || source === undefined) return "";
  return name ?? `${source} ${command_id.slice(-4)}`;
}

function weightOf({ text, base64 }) {
  return (text ?? base64 ?? "").length;
}

function textOf({ text, base64 }) {
  return text ?? new TextDecoder().decode(Uint8Array.from(atob(base64), letter => letter.charCodeAt(0)));
}

function missing({ size, stream, reason, oldest }) {
  if (oldest !== undefined) return "What was said before is not kept any more.";
  const whose = stream ? ` of ${stream}` : "";
  return size === null ? `Something${whose} may be missing here${reason ? `: ${reason}` : "."}` : `${size} bytes${whose} are missing here.`;
}

function outcome({ state, exit_code, reason }) {
  const code = exit_code === null || exit_code === undefined ? "" : ` with ${exit_code}`;
  return `${state}${code}${reason ? `: ${reason}` : ""}`;
}

function event({ type, reason }) {
  return `${type.replace(/^sandbox\./, "").replaceAll("_", " ")}: ${reason ?? ""}`;
}
