import { useEffect, useRef } from "react";

export type KeyMap = Record<string, (event: KeyboardEvent) => unknown>;

const TYPES_TEXT =
  "input:not([type=checkbox]), textarea, select, [contenteditable], .xterm, [role=dialog], [role=alertdialog], [role=menu]";

/** Whether a key press belongs to what has the focus: a text, a terminal, a dialog; Enter also to links and buttons. */
function isTaken({ target, key }: KeyboardEvent): boolean {
  if (!(target instanceof Element)) return false;
  return target.closest(TYPES_TEXT) !== null || (key === "Enter" && target.closest("a, button") !== null);
}

/** Handle keys of a page; the newest handlers count, without registering again. */
export function useKeys(keys: KeyMap): void {
  const current = useRef(keys);
  useEffect(() => {
    current.current = keys;
  });
  useEffect(() => {
    const press = (event: KeyboardEvent) => {
      if (event.ctrlKey || event.metaKey || event.altKey || isTaken(event)) return;
      const handle = current.current[event.key];
      if (handle === undefined) return;
      event.preventDefault();
      handle(event);
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}
