import { h } from "./dom.js";
import { badge } from "./state.js";
import { clockTime, fullTime } from "./formatting.js";

/** A sandbox's state changes with their cause, actor and reason; newest first. */
export class Timeline {
  constructor() {
    this.element = h("ol", { class: "timeline", "aria-label": "Timeline" });
    this._last = 0;
  }

  /** Add an event; returns false if it is already shown. */
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
  const by = actor?.kind === "key" ? `by key ${actor.id}` : actor ? `by ${actor.kind === "server" ? "the server" : `a ${actor.kind}`}` : "";
  return [cause, by].filter(Boolean).join(", ");
}
