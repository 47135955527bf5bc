import { h } from "./dom.js";

const SHOWN_FOR_MS = 8000;

/** Show a notice for some seconds; screen readers announce it. */
export function notify(text, { kind = "plain" } = {}) {
  const notice = h("p", { class: `notice ${kind}` }, text);
  notice.append(h("button", { type: "button", class: "quiet", "aria-label": "Close", onclick: () => notice.remove() }, "×"));
  document.getElementById("notices").append(notice);
  setTimeout(() => notice.remove(), SHOWN_FOR_MS);
}

/** Run an action and show its error, if any; resolves to whether it succeeded. */
export async function attempt(act) {
  try {
    await act();
    return true;
  } catch (problem) {
    if (problem.status !== 401) notify(problem.message, { kind: "bad" }); // a lost session is reported elsewhere
    return false;
  }
}
