import { h, say } from "./dom.js";

export const ENDED = ["stopped", "failed"];

/** A sandbox's state as a badge, which is told apart by more than its colour. */
export function badge(state) {
  const element = h("span", {});
  setBadge(element, state);
  return element;
}

export function setBadge(element, state) {
  element.className = `badge ${state}`;
  say(element, state);
}
