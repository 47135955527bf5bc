import { call, get } from "./api.js";
import { confirm } from "./dialog.js";
import { button, fill, h, setText } from "./dom.js";
import { mayChange } from "./login.js";
import { attempt } from "./notices.js";
import { TerminalConnection } from "./terminal-connection.js";

const RESIZE_DELAY_MS = 100;
const LONGEST_TITLE = 100;
const THEME = { background: "#14171c", foreground: "#d8dee7", cursor: "#7aa7f7", selectionBackground: "#3b5b93" };
const FONT = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace";

/** Show a terminal; any number of viewers can be attached. */
export function showTerminal(root, { login, showConnection, ids: [sandboxId, terminalId] }) {
  const path = `/v1/sandboxes/${sandboxId}/terminals/${terminalId}`;
  const title = h("span", { class: "title" });
  const status = h("p", { class: "status", role: "status" }, "Connecting…");
  const screen = h("div", { class: "screen" });
  const back = h("a", { href: `#sandboxes/${sandboxId}` }, "← ", h("span", { class: "id" }, sandboxId));
  const killing = button("Kill terminal", end, { class: "dangerous" });
  const mayType = mayChange(login);
  let leave = () => {}, left = false;

  document.title = `Terminal · ${sandboxId}`;
  fill(root, h("div", { class: "terminal" },
    h("div", { class: "bar" }, back, title, mayType ? killing : null),
    screen,
    status));
  document.body.classList.add("with-terminal");

  async function end() {
    if (!(await confirm("Kill this terminal?", "Its processes are killed.", "Kill"))) return;
    await attempt(() => call("DELETE", path));
  }

  async function begin() {
    const xterm = await import("./xterm.js").catch(() => null);
    if (xterm === null) return setText(status, "Terminals require xterm.js, which is not installed on the server. Run `make install` there with access to the npm registry, then restart the server.");
    const found = await get(path).catch(problem => problem);
    if (left) return;
    if (found instanceof Error) return setText(status, found.message);
    leave = open(xterm, found);
  }

  function open({ Terminal, FitAddon }, found) {
    const terminal = new Terminal({
      cols: found.cols, rows: found.rows, scrollback: 5000, fontFamily: FONT, fontSize: 14, theme: THEME, disableStdin: !mayType,
    });
    const fit = new FitAddon();
    terminal.loadAddon(fit);
    terminal.open(screen);
    terminal.onTitleChange(text => setText(title, text.slice(0, LONGEST_TITLE)));
    // Tab is input of the terminal, so keyboard users need another way to leave it.
    terminal.attachCustomKeyEventHandler(event => {
      if (!(event.ctrlKey && event.shiftKey && event.key.toLowerCase() === "x")) return true;
      back.focus();
      return false;
    });

    const connection = new TerminalConnection(path, found, {
      terminal,
      state: showConnection,
      status: text => setText(status, text || (mayType ? "Press Ctrl+Shift+X to leave the terminal. It keeps running when you close this page." : "Read-only: your API key does not allow input.")),
      attached: () => mayType && fitScreen(),
      ended: () => killing.remove(),
    });

    function fitScreen() {
      const size = fit.proposeDimensions();
      if (size !== undefined && size.cols > 1 && size.rows > 1) connection.resize(size);
    }

    let resizing = null;
    const observer = new ResizeObserver(() => {
      clearTimeout(resizing);
      resizing = setTimeout(() => mayType && fitScreen(), RESIZE_DELAY_MS);
    });
    observer.observe(screen);
    terminal.focus();
    return () => {
      clearTimeout(resizing);
      observer.disconnect();
      connection.close();
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
