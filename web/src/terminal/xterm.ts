/** xterm.js, adapted to a Content-Security-Policy without inline styles. */

import { FitAddon } from "@xterm/addon-fit";
import { Terminal } from "@xterm/xterm";
import "@xterm/xterm/css/xterm.css";

// xterm.js writes rules into `<style>` elements and colours into `style` attributes, which the policy forbids. The CSSOM,
// which scripts may use, has the same effect.
const createElement = document.createElement.bind(document);
document.createElement = ((name: string, options?: ElementCreationOptions) =>
  name === "style" ? createRules() : createElement(name, options)) as typeof document.createElement;

/** Make a stand-in that accepts rules like a `<style>` element; browsers refuse even empty inline ones. */
function createRules(): HTMLElement {
  const sheet = new CSSStyleSheet();
  const place = createElement("template");
  document.adoptedStyleSheets.push(sheet);
  Object.defineProperty(place, "textContent", { set: (text: string) => sheet.replaceSync(text) });
  place.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter((each) => each !== sheet);
    Element.prototype.remove.call(place);
  };
  return place;
}

HTMLSpanElement.prototype.setAttribute = function setAttribute(name: string, value: string) {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
};

export { FitAddon, Terminal };
