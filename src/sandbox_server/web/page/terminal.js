import { call, get } from "./api.js";
import { confirm } from "./dialog.js";
import { button, fill, h, say } from "./dom.js";
import { mayChange } from "./login.js";
import { attempt } from "./notices.js";
import { TerminalConnection } from "./terminal-connection.js";

const SETTLED_MS = 100;
const LONGEST_TITLE = 100;
const THEME = { background: "#14171c", foreground: "#d8dee7", cursor: "#7aa7f7", selectionBackground: "#3b5b93" };
const FONT = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace";

/** Show a terminal, as any number of viewers may at once. */
export function showTerminal(root, { login, tellConnection, ids: [sandboxId, terminalId] }) {
  const path = `/v1/sandboxes/${sandboxId}/terminals/${terminalId}`;
  const title = h("span", { class: "title" });
  const status = h("p", { class: "status", role: "status" }, "Connecting…");
  const screen = h("div", { class: "screen" });
  const back = h("a", { href: `#sandboxes/${sandboxId}` }, "← ", h("span", { class: "id" }, sandboxId));
  const killing = button("End it", end, { class: "dangerous" });
  const may = mayChange(login);
  let leave = () => {}, left = false;

  document.title = `Terminal · ${sandboxId}`;
  fill(root, h("div", { class: "terminal" },
    h("div", { class: "bar" }, back, title, may ? killing : null),
    screen,
    status));
  document.body.classList.add("with-terminal");

  async function end() {
    if (!(await confirm("End this terminal?", "What runs in it is killed.", "End it"))) return;
    await attempt(() => call("DELETE", path));
  }

  async function begin() {
    const xterm = await import("./xterm.js").catch(() => null);
    if (xterm === null) return say(status, "Terminals need xterm.js, which is not installed here: run `make install` on the server's machine while npm's registry answers, and restart the server.");
    const found = await get(path).catch(problem => problem);
    if (left) return;
    if (found instanceof Error) return say(status, found.message);
    leave = open(xterm, found);
  }

  function open({ Terminal, FitAddon }, found) {
    const terminal = new Terminal({
      cols: found.cols, rows: found.rows, scrollback: 5000, fontFamily: FONT, fontSize: 14, theme: THEME, disableStdin: !may,
    });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.open(screen);
    terminal.onTitleChange(text => say(title, text.slice(0, LONGEST_TITLE)));
    // Tab is the terminal's: there has to be another way out by the keyboard.
    terminal.attachCustomKeyEventHandler(event => {
      if (!(event.ctrlKey && event.shiftKey && event.key.toLowerCase() === "x")) return true;
      back.focus();
      return false;
    });

    const line = new TerminalConnection(path, found, {
      terminal,
      state: tellConnection,
      status: text => say(status, text || (may ? "Ctrl+Shift+X leaves the terminal. It runs on when you close this page." : "Your key may look, and not type.")),
      attached: () => may && fitIn(),
      ended: () => killing.remove(),
    });

    function fitIn() {
      const size = fit.proposeDimensions();
      if (size !== undefined && size.cols > 1 && size.rows > 1) line.resize(size);
    }

    let settling = null;
    const watching = new ResizeObserver(() => {
      clearTimeout(settling);
      settling = setTimeout(() => may && fitIn(), SETTLED_MS);
    });
    watching.observe(screen);
    terminal.focus();
    return () => {
      clearTimeout(settling);
      watching.disconnect();
      line.close();
      terminal.dispose();
    };
  }

  begin();
  return () => {
    left = true;
    document.body.classList.remove("with-terminal");
    leave();
  };
}
