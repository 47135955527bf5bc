import { openCreateDialog } from "./create.js";
import { button, fill, h, setText } from "./dom.js";
import { SandboxList } from "./sandbox-list.js";
import { mayChange } from "./login.js";
import { notify } from "./notices.js";
import { badge, setBadge } from "./state.js";
import { follow } from "./stream.js";
import { age, deadlines, fullTime } from "./formatting.js";

const TICK_MS = 5000, RETRY_MS = 2000;

/** Show all sandboxes, updated live. */
export function showSandboxes(root, { login, showConnection }) {
  const rows = new Map();
  const list = h("ul", { class: "rows", "aria-label": "Sandboxes" });
  const count = h("p", { class: "hint", role: "status" }, "Loading…");
  const search = h("input", { type: "search", placeholder: "Search by id, user, session, template, metadata", "aria-label": "Search", oninput: () => applySearch() });
  const withEnded = h("input", { type: "checkbox", id: "with-ended", onchange: () => {
    sandboxList.withEnded = withEnded.checked;
    load();
  } });
  const create = button("New sandbox", () => openCreateDialog(), { class: "main" });
  fill(root,
    h("div", { class: "bar" },
      h("h1", {}, "Sandboxes"),
      mayChange(login) ? create : null),
    h("div", { class: "bar tools" }, search, h("label", { for: "with-ended" }, withEnded, " Show deleted")),
    count,
    list);

  const sandboxList = new SandboxList(ids => {
    ids.forEach(id => place(id));
    applySearch();
  });

  function place(id) {
    const sandbox = sandboxList.sandboxes.get(id);
    const row = rows.get(id);
    if (sandbox === undefined) {
      row?.element.remove();
      rows.delete(id);
    } else if (row === undefined) {
      const made = new Row(sandbox);
      rows.set(id, made);
      list.insertBefore(made.element, newestBefore(id));
    } else {
      row.update(sandbox);
    }
  }

  // Newest first: ids sort by their time.
  function newestBefore(id) {
    let next = list.firstElementChild;
    while (next !== null && next.dataset.id > id) next = next.nextElementSibling;
    return next;
  }

  function applySearch() {
    const text = search.value.trim().toLowerCase();
    let shown = 0;
    for (const row of rows.values()) {
      row.element.hidden = !row.text.includes(text);
      shown += row.element.hidden ? 0 : 1;
    }
    setText(count, summary(shown, [...sandboxList.sandboxes.values()]));
  }

  async function load() {
    try {
      await sandboxList.load();
    } catch (problem) {
      if (problem.status === 401 || left) return;
      if (problem.status) notify(problem.message, { kind: "bad" }); // if unreachable, the header shows it
      retry = setTimeout(load, RETRY_MS);
    }
  }

  let loaded = null, retry = null, left = false;
  const leave = follow("/v1/events", { tail: 0 }, {
    state: state => {
      showConnection(state);
      if (state === "live") loaded ??= load();
    },
    received: event => (event.type === "gap" ? load() : event.sandbox_id && sandboxList.refresh(event.sandbox_id)),
    missed: load,
  });
  const ticking = setInterval(() => rows.forEach(row => row.tick()), TICK_MS);
  return () => {
    left = true;
    leave();
    sandboxList.close();
    clearInterval(ticking);
    clearTimeout(retry);
  };
}

function summary(shown, sandboxes) {
  if (sandboxes.length === 0) return "No sandboxes. New sandboxes appear here immediately.";
  const counts = new Map();
  for (const { state } of sandboxes) counts.set(state, (counts.get(state) ?? 0) + 1);
  const summary = [...counts].map(([state, number]) => `${number} ${state}`).join(", ");
  return shown === sandboxes.length ? `${sandboxes.length}: ${summary}` : `${shown} of ${sandboxes.length}: ${summary}`;
}

/** A row of the list. */
class Row {
  constructor(sandbox) {
    this._badge = badge(sandbox.state);
    this._name = h("span", { class: "id" });
    this._what = h("span", { class: "what" });
    this._who = h("span", { class: "who" });
    this._age = h("span", { class: "age" });
    this._words = h("span", { class: "words" });
    this.element = h("li", { "data-id": sandbox.id },
      h("a", { class: "row", href: `#sandboxes/${sandbox.id}` }, this._badge, this._name, this._what, this._who, this._words, this._age));
    this.update(sandbox);
  }

  update(sandbox) {
    this._sandbox = sandbox;
    setBadge(this._badge, sandbox.state);
    setText(this._name, sandbox.id);
    setText(this._what, [sandbox.template, sandbox.backend].filter(Boolean).join(" on "));
    setText(this._who, [sandbox.user_id, sandbox.session_id].filter(Boolean).join(" · "));
    const labels = Object.entries(sandbox.metadata).map(([name, value]) => `${name}=${value}`);
    this._who.title = labels.join("\n");
    this._age.title = `Created ${fullTime(sandbox.created_at)}`;
    this.text = [sandbox.id, sandbox.state, sandbox.template, sandbox.backend, sandbox.user_id, sandbox.session_id, ...labels].join(" ").toLowerCase();
    this.tick();
  }

  /** Update the texts that depend on the time. */
  tick() {
    setText(this._age, age(this._sandbox.created_at));
    setText(this._words, deadlines(this._sandbox).join(" · "));
  }
}
