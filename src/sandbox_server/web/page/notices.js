import { h } from "./dom.js";

const SHOWN_FOR_MS = 8000;

/** Say something for a while, in a place that is read aloud. */
export function notify(text, { kind = "plain" } = {}) {
  const notice = h("p", { class: `notice ${kind}` }, text);
  notice.append(h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => notice.remove() }, "×"));
  document.getElementById("notices").append(notice);
  setTimeout(() => notice.remove(), SHOWN_FOR_MS);
}

/** Do something, and say what goes wrong; gives whether nothing did. */
export async function attempt(act) {
  try {
    await act();
    return true;
  } catch (problem) {
    if (problem.status !== 401) notify(problem.message, { kind: "bad" }); // who is signed out sees that
    return false;
  }
}
