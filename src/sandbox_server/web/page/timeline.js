import { h } from "./dom.js";
import { badge } from "./state.js";
import { clockTime, fullTime } from "./formatting.js";

/** What happened to a sandbox, each with who or what caused it, and why; newest first. */
export class Timeline {
  constructor() {
    this.element = h("ol", { class: "timeline", "aria-label": "What happened" });
    this._last = 0;
  }

  /** Add what happened, and tell whether it is news. */
  add(entry) {
    if (entry.seq <= this._last) return false;
    this._last = entry.seq;
    const state = entry.type.replace(/^sandbox\./, "");
    this.element.prepend(h("li", {},
      h("time", { datetime: entry.at, title: fullTime(entry.at) }, clockTime(entry.at)),
      badge(state.replaceAll("_", " ")),
      h("span", { class: "reason" }, entry.reason ?? ""),
      h("span", { class: "cause" }, cause(entry))));
    return true;
  }
}

function cause({ cause, actor }) {
  const who = actor?.kind === "key" ? `by key ${actor.id}` : actor ? `by ${actor.kind === "server" ? "the server" : `a ${actor.kind}`}` : "";
  return [cause, who].filter(Boolean).join(", ");
}
