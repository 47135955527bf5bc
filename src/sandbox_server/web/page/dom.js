/** Make an element. What is no element among its children is text: nothing is ever read as HTML. */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name.slice("on".length), value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  fill(element, ...children);
  return element;
}

/** Have these children in place of all there were. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat().filter(child => child !== null && child !== undefined && child !== false));
}

/** Set a text, and touch nothing where it is that already. */
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A button that cannot be pressed again while what it does is under way. */
export function button(label, act, properties = {}) {
  const element = h("button", { type: "button", ...properties }, label);
  element.addEventListener("click", async () => {
    element.disabled = true;
    try {
      await act();
    } finally {
      element.disabled = false;
    }
  });
  return element;
}
