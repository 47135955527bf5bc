/** xterm.js, adapted to a Content-Security-Policy without inline styles. */

// xterm.js writes rules into `<style>` elements and colours into `style` attributes, which the policy forbids. The CSSOM,
// which scripts may use, has the same effect.
const createElement = document.createElement.bind(document);
document.createElement = (name, options) => (name === "style" ? createRules() : createElement(name, options));

// A stand-in that accepts rules like a `<style>` element; browsers refuse even empty inline ones.
function createRules() {
  const sheet = new CSSStyleSheet();
  const place = createElement("template");
  document.adoptedStyleSheets.push(sheet);
  Object.defineProperty(place, "textContent", { set: text => sheet.replaceSync(text) });
  place.remove = () => {
    document.adoptedStyleSheets = document.adoptedStyleSheets.filter(each => each !== sheet);
    Element.prototype.remove.call(place);
  };
  return place;
}

HTMLSpanElement.prototype.setAttribute = function setAttribute(name, value) {
  if (name === "style") this.style.cssText = value;
  else Element.prototype.setAttribute.call(this, name, value);
};

const [{ Terminal }, { FitAddon }] = await Promise.all([import("./vendor/xterm.mjs"), import("./vendor/addon-fit.mjs")]);

export { FitAddon, Terminal };
