import { call, get, pages, post } from "./api.js";
import { confirm } from "./dialog.js";
import { button, fill, h, setText } from "./dom.js";
import { LogView } from "./log.js";
import { mayChange } from "./login.js";
import { attempt } from "./notices.js";
import { badge, ENDED, setBadge } from "./state.js";
import { follow } from "./stream.js";
import { openTerminal, terminalsOf } from "./terminals.js";
import { Timeline } from "./timeline.js";
import { ago, deadlines, duration, fullTime } from "./formatting.js";

const TICK_MS = 5000, BATCH_MS = 150;
const FIRST_LINES = 500;

/** Show one sandbox: its details, its timeline and its log. */
export function showSandbox(root, { login, showConnection, ids: [id] }) {
  const path = `/v1/sandboxes/${id}`;
  document.title = `${id} · sandbox-server`;
  const state = badge("");
  const words = h("p", { class: "hint", role: "status" });
  const facts = h("dl", { class: "facts" });
  const buttons = h("div", { class: "buttons" });
  const terminals = h("p", { class: "terminals" });
  const timeline = new Timeline();
  const log = new LogView(path, () => restart());
  let sandbox = null, leave = () => {}, left = false, reading = null;

  fill(root,
    h("p", { class: "back" }, h("a", { href: "#" }, "← All sandboxes")),
    h("div", { class: "bar" }, h("h1", { class: "id" }, id), state, buttons),
    words,
    terminals,
    h("div", { class: "halves" },
      h("section", {}, h("h2", {}, "Details"), facts),
      h("section", {}, h("h2", {}, "Timeline"), timeline.element)),
    log.element);

  async function read() {
    const before = sandbox?.state;
    sandbox = await get(path);
    if (left) return;
    setBadge(state, sandbox.state);
    fill(facts, ...details(sandbox).flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]));
    tick();
    if (before === sandbox.state) return;
    fill(buttons, ...(mayChange(login) ? actions() : []));
    fill(terminals, ...(await terminalsOf(sandbox)));
  }

  function tick() {
    if (sandbox !== null) setText(words, [sandbox.state_reason, sandbox.template_note, ...deadlines(sandbox)].filter(Boolean).join(" · "));
  }

  function actions() {
    if (ENDED.includes(sandbox.state) || sandbox.target === "gone") return [];
    const isPaused = ["paused", "pausing"].includes(sandbox.state);
    const opening = button("Open terminal", () => attempt(() => openTerminal(sandbox)), { class: "main" });
    const pausing = button("Pause", () => change("pause"));
    const resuming = button("Resume", () => change("resume?wait=0"));
    const deleting = button("Delete", remove, { class: "dangerous" });
    if (sandbox.state === "queued") return [deleting];
    return [opening, isPaused ? resuming : pausing, deleting];
  }

  const change = act => attempt(async () => {
    await post(`${path}/${act}`);
    await read();
  });

  async function remove() {
    if (!(await confirm(`Delete ${id}?`, "All its files, processes and terminals are deleted permanently.", "Delete sandbox"))) return;
    await attempt(async () => {
      await call("DELETE", path);
      await read();
    });
  }

  function showRecord(record) {
    if (record.source === "events" && timeline.add(record)) reading ??= setTimeout(readAgain, BATCH_MS);
    if (record.source === undefined || log.shows(record.source)) log.add(record); // a gap in all sources has no source
  }

  function readAgain() {
    reading = null;
    if (!left) attempt(read);
  }

  function restart() {
    leave();
    log.clear();
    const query = new URLSearchParams({ tail: FIRST_LINES });
    // Events are always followed, even if not shown in the log: they trigger reading the sandbox again.
    for (const source of new Set(["events", ...log.sources])) query.append("source", source);
    leave = follow(`${path}/logs`, query, {
      received: showRecord,
      state: showConnection,
      missed: () => restart(),
      isOver: async () => {
        await read();
        return ENDED.includes(sandbox.state);
      },
    });
  }

  async function begin() {
    try {
      await read();
      for await (const items of pages(`${path}/timeline`, { limit: 200 })) items.forEach(entry => timeline.add(entry));
    } catch (problem) {
      return fill(root, h("p", { class: "empty" }, `${problem.message} `, h("a", { href: "#" }, "All sandboxes")));
    }
    if (!left) restart();
  }

  begin();
  const ticking = setInterval(tick, TICK_MS);
  return () => {
    left = true;
    leave();
    clearInterval(ticking);
  };
}

function details(sandbox) {
  const { resources } = sandbox;
  const labels = Object.entries(sandbox.metadata).map(([name, value]) => `${name} = ${value}`);
  const size = [resources.cpu_count && `${resources.cpu_count} CPU`, resources.memory_mb && `${resources.memory_mb} MiB`].filter(Boolean);
  const facts = [
    ["Template", sandbox.template],
    ["Backend", sandbox.backend],
    ["Resources", size.join(", ")],
    ["User", sandbox.user_id],
    ["Session", sandbox.session_id],
    ["Agent", sandbox.agent_type],
    ["Metadata", labels.join("\n")],
    ["Created", fullTime(sandbox.created_at)],
    ["Last activity", sandbox.last_activity_at && ago(sandbox.last_activity_at)],
    ["Timeout", `${sandbox.on_timeout === "delete" ? "deleted" : "paused"} after ${duration(sandbox.timeout_s)}`],
    ["Idle timeout", sandbox.idle_timeout_s === null ? "off" : `paused after ${duration(sandbox.idle_timeout_s)}`],
    ["Auto-resume", sandbox.auto_resume ? "on" : "off"],
    ["Priority", sandbox.priority ? String(sandbox.priority) : null],
  ];
  return facts.filter(([, value]) => value);
}
