import { h, setText } from "./dom.js";

export const ENDED = ["stopped", "failed"];

/** Create a badge with a sandbox's state, as text and colour. */
export function badge(state) {
  const element = h("span", {});
  setBadge(element, state);
  return element;
}

export function setBadge(element, state) {
  element.className = `badge ${state}`;
  setText(element, state);
}
