/** xterm.js, as it works where a page may have no styles but those of its own files. */

// It writes rules into `<style>` and colours into `style="…"`, which the Content-Security-Policy forbids to all. To say
// the same by the CSSOM is a script's own right.
const createElement = document.createElement.bind(document);
document.createElement = (name, options) => (name === "style" ? createRules() : createElement(name, options));

// A place in the document that takes rules as a `<style>` would; of these a browser refuses even the empty.
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
