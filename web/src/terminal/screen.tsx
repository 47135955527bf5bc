import { useEffect, useRef, useState } from "react";
import { api, root, unwrap } from "../api/client.ts";
import { Problem } from "../api/problem.ts";
import { TerminalConnection } from "./connection.ts";
import { FitAddon, Terminal } from "./xterm.ts";

const RESIZE_DELAY_MS = 100;
const THEME = {
  background: "#14171c",
  foreground: "#d8dee7",
  cursor: "#7aa7f7",
  selectionBackground: "#3b5b93",
};
const FONT = "ui-monospace, 'SF Mono', Menlo, Consolas, 'DejaVu Sans Mono', monospace";
const HINT = "Ctrl+Shift+X leaves the terminal. It keeps running when you close this page.";
const READ_ONLY = "Read-only: your API key does not allow input.";

interface ScreenProps {
  sandboxId: string;
  terminalId: string;
  mayType: boolean;
  /** Called when the reader leaves the terminal by keyboard. */
  left: () => void;
}

const readTerminal = (sandbox_id: string, terminal_id: string) =>
  unwrap(
    api.GET("/v1/sandboxes/{sandbox_id}/terminals/{terminal_id}", {
      params: { path: { sandbox_id, terminal_id } },
    }),
  );

/** A terminal; any number of viewers can be attached. */
export function TerminalScreen({ sandboxId, terminalId, mayType, left }: ScreenProps) {
  const box = useRef<HTMLDivElement>(null);
  const [status, setStatus] = useState("Connecting…");
  const leave = useRef(left);
  useEffect(() => {
    leave.current = left;
  });

  useEffect(() => {
    let close = () => {};
    let isGone = false;
    readTerminal(sandboxId, terminalId).then(
      (found) => {
        if (isGone || box.current === null) return;
        close = open(
          box.current,
          { sandboxId, terminalId, mayType, setStatus, left: () => leave.current() },
          found,
        );
      },
      (problem: Error) => setStatus(problem.message),
    );
    return () => {
      isGone = true;
      close();
    };
  }, [sandboxId, terminalId, mayType]);

  return (
    <div className="flex min-h-0 flex-1 flex-col">
      <div ref={box} className="min-h-0 flex-1 overflow-hidden rounded-lg bg-[#14171c] p-2" />
      <p role="status" className="mt-1 text-faint">
        {status || (mayType ? HINT : READ_ONLY)}
      </p>
    </div>
  );
}

interface OpenOptions extends ScreenProps {
  setStatus: (text: string) => void;
}

function open(
  box: HTMLElement,
  options: OpenOptions,
  found: { cols: number; rows: number; size: number },
): () => void {
  const { sandboxId, terminalId, mayType, setStatus, left } = options;
  const terminal = new Terminal({
    cols: found.cols,
    rows: found.rows,
    scrollback: 5000,
    fontFamily: FONT,
    fontSize: 14,
    theme: THEME,
    disableStdin: !mayType,
  });
  const fit = new FitAddon();
  terminal.loadAddon(fit);
  terminal.open(box);
  // Tab is input of the terminal, so keyboard users need another way to leave it.
  terminal.attachCustomKeyEventHandler((event) => {
    if (!(event.ctrlKey && event.shiftKey && event.key.toLowerCase() === "x")) return true;
    left();
    return false;
  });

  const url = `${root}v1/sandboxes/${sandboxId}/terminals/${terminalId}`;
  const fitScreen = () => {
    const size = fit.proposeDimensions();
    if (mayType && size !== undefined && size.cols > 1 && size.rows > 1) connection.resize(size);
  };
  const connection = new TerminalConnection(url, found, terminal, {
    state: (state) => state === "lost" && setStatus("Connection lost, reconnecting…"),
    status: setStatus,
    attached: () => queueMicrotask(fitScreen),
    ended: () => {},
    whyRefused: () =>
      readTerminal(sandboxId, terminalId).then(
        () => null,
        (problem: unknown) =>
          problem instanceof Problem && [401, 404].includes(problem.status) ? problem.message : null,
      ),
  });

  let resizing: ReturnType<typeof setTimeout> | undefined;
  const observer = new ResizeObserver(() => {
    clearTimeout(resizing);
    resizing = setTimeout(fitScreen, RESIZE_DELAY_MS);
  });
  observer.observe(box);
  terminal.focus();
  return () => {
    clearTimeout(resizing);
    observer.disconnect();
    connection.close();
    terminal.dispose();
  };
}
