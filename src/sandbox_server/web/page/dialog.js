import { h } from "./dom.js";

/** Open a dialog with a form; resolves to its data, or null if it was cancelled. */
export function ask({ title, fields = [], act, dangerous = false }) {
  const form = h("form", { method: "dialog" },
    h("h2", {}, title),
    ...fields,
    h("div", { class: "buttons" },
      h("button", { type: "submit", value: "act", class: dangerous ? "dangerous" : "main" }, act),
      h("button", { type: "submit", value: "", class: "quiet", formnovalidate: true }, "Cancel")));
  const dialog = h("dialog", { "aria-label": title }, form);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise(resolve => {
    dialog.addEventListener("close", () => {
      resolve(dialog.returnValue === "act" ? new FormData(form) : null);
      dialog.remove();
    });
  });
}

export async function confirm(title, text, act) {
  return (await ask({ title, fields: [h("p", {}, text)], act, dangerous: true })) !== null;
}
