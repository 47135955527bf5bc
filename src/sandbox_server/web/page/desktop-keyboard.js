// The on-screen keyboard of phones, which sends text and no keys: what it changes in a field is sent as keys.

import keysyms from "./vendor/novnc/core/input/keysymdef.js";

const BACKSPACE = 0xff08;
const ENTER = 0xff0d;
const FILL = "_".repeat(50); // so that backspace has something to remove

export class TypedKeys {
  constructor(field, viewer) {
    this.field = field;
    this.viewer = viewer;
    field.addEventListener("input", () => this.send());
    field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.press(ENTER);
    });
  }

  open() {
    this.field.value = FILL;
    this.field.focus();
  }

  send() {
    const text = this.field.value;
    let same = 0;
    while (same < text.length && same < FILL.length && text[same] === FILL[same]) same += 1;
    for (let removed = same; removed < FILL.length; removed += 1) this.press(BACKSPACE);
    for (const character of text.slice(same)) this.press(keysyms.lookup(character.codePointAt(0)));
    this.field.value = FILL;
  }

  press(keysym) {
    this.viewer()?.sendKey(keysym, null);
  }
}
