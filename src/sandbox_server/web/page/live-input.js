// Sends the pointer and the keyboard on the picture of a page to that page.

const BUTTONS = ["left", "middle", "right", "back", "forward"];
const TEXT_OF_KEYS = { Enter: "\r", Tab: "\t" };

export class Input {
  #screen;
  #picture;
  #send;
  #size = null;
  #move = null;

  // `send(method, params)` forwards a command to the page that is shown; false while nobody may control it.
  constructor(screen, picture, send) {
    this.#screen = screen;
    this.#picture = picture;
    this.#send = send;
    for (const [name, type] of [["mousedown", "mousePressed"], ["mouseup", "mouseReleased"]]) {
      picture.addEventListener(name, (event) => this.#press(event, type));
    }
    picture.addEventListener("mousemove", (event) => this.#moveSoon(event));
    picture.addEventListener("contextmenu", (event) => event.preventDefault());
    picture.addEventListener("wheel", (event) => this.#scroll(event), { passive: false });
    screen.addEventListener("keydown", (event) => this.#type(event, "keyDown"));
    screen.addEventListener("keyup", (event) => this.#type(event, "keyUp"));
    screen.addEventListener("paste", (event) => this.#paste(event));
  }

  // Size of the page in CSS pixels, of which the picture is a scaled one.
  set size(size) {
    this.#size = size;
  }

  #press(event, type) {
    event.preventDefault();
    this.#screen.focus();
    this.#flushMove();
    this.#mouse(event, { type, button: BUTTONS[event.button] ?? "none", clickCount: event.detail || 1 });
  }

  #moveSoon(event) {
    if (this.#move === null) requestAnimationFrame(() => this.#flushMove());
    this.#move = event;
  }

  #flushMove() {
    const event = this.#move;
    this.#move = null;
    if (event !== null) this.#mouse(event, { type: "mouseMoved", button: "none" });
  }

  #scroll(event) {
    event.preventDefault();
    this.#mouse(event, { type: "mouseWheel", deltaX: event.deltaX, deltaY: event.deltaY });
  }

  #mouse(event, params) {
    if (this.#size === null) return;
    const shown = this.#picture.getBoundingClientRect();
    const x = ((event.clientX - shown.left) / shown.width) * this.#size.width;
    const y = ((event.clientY - shown.top) / shown.height) * this.#size.height;
    this.#send("Input.dispatchMouseEvent", { ...params, x, y, buttons: event.buttons, modifiers: modifiersOf(event) });
  }

  #type(event, type) {
    if (event.isComposing || isPaste(event)) return;
    const isText = event.key.length === 1 && !event.ctrlKey && !event.metaKey;
    const text = type === "keyDown" ? (isText ? event.key : TEXT_OF_KEYS[event.key]) : undefined;
    const isSent = this.#send("Input.dispatchKeyEvent", {
      type: type === "keyDown" && text === undefined ? "rawKeyDown" : type,
      key: event.key,
      code: event.code,
      text,
      windowsVirtualKeyCode: event.keyCode,
      autoRepeat: event.repeat,
      modifiers: modifiersOf(event),
    });
    if (isSent) event.preventDefault();
  }

  #paste(event) {
    const text = event.clipboardData?.getData("text/plain") ?? "";
    if (text && this.#send("Input.insertText", { text })) event.preventDefault();
  }
}

function modifiersOf(event) {
  return (event.altKey ? 1 : 0) | (event.ctrlKey ? 2 : 0) | (event.metaKey ? 4 : 0) | (event.shiftKey ? 8 : 0);
}

function isPaste(event) {
  return (event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "v";
}
