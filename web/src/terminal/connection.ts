import type { Terminal } from "@xterm/xterm";
import type { Connection } from "../live/stream.ts";

const FIRST_WAIT_MS = 250;
const LONGEST_WAIT_MS = 5000;
const PING_AFTER_MS = 25_000;
const ANSWERED_WITHIN_MS = 10_000;
const ENDED = 1000;

interface Size {
  cols: number;
  rows: number;
}

export interface ConnectionCallbacks {
  state: (state: Connection) => void;
  status: (text: string) => void;
  attached: () => void;
  ended: () => void;
  /** Find out why a connection was refused, which browsers do not tell; returns why not to try again. */
  whyRefused: () => Promise<string | null>;
}

interface Control extends Partial<Size> {
  type: string;
  offset?: number;
  size?: number | null;
  state?: string;
  title?: string;
  detail?: string;
  exit_code?: number | null;
  reason?: string | null;
}

/**
 * The WebSocket between the terminal on the screen and the one in the sandbox; its protocol is in docs/terminals.md.
 *
 * It reconnects and resumes after the last byte shown, until the terminal has ended.
 */
export class TerminalConnection {
  readonly #url: string;
  readonly #terminal: Terminal;
  readonly #callbacks: ConnectionCallbacks;
  readonly #replayed: number;
  readonly #encoder = new TextEncoder();
  #size: Size;
  #shown: number | null = null;
  #parsed: number | undefined;
  #wait = FIRST_WAIT_MS;
  #socket: WebSocket | null = null;
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isOver = false;

  constructor(
    url: string,
    found: Size & { size: number },
    terminal: Terminal,
    callbacks: ConnectionCallbacks,
  ) {
    this.#url = url.replace(/^http/, "ws");
    this.#terminal = terminal;
    this.#callbacks = callbacks;
    this.#replayed = found.size; // output from before this connection
    this.#size = { cols: found.cols, rows: found.rows };
    terminal.onData((text) => this.#type(this.#encoder.encode(text)));
    terminal.onBinary((text) => this.#type(Uint8Array.from(text, (letter) => letter.charCodeAt(0))));
    this.#connect();
  }

  /** Resize the terminal, locally and in the sandbox. */
  resize({ cols, rows }: Size): void {
    this.#terminal.resize(cols, rows);
    if (cols === this.#size.cols && rows === this.#size.rows) return;
    this.#size = { cols, rows };
    this.#send(JSON.stringify({ type: "resize", cols, rows }));
  }

  close(): void {
    this.#isOver = true;
    clearTimeout(this.#timer);
    this.#socket?.close();
  }

  #connect(): void {
    const socket = new WebSocket(this.#shown === null ? this.#url : `${this.#url}?after=${this.#shown}`);
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }) => {
      this.#restartTimer();
      if (typeof data === "string") this.#handle(JSON.parse(data) as Control);
      else this.#show(new Uint8Array(data as ArrayBuffer));
    };
    socket.onclose = ({ code }) => this.#lost(code);
    this.#socket = socket;
  }

  #show(bytes: Uint8Array): void {
    this.#shown = (this.#shown ?? 0) + bytes.length;
    const shown = this.#shown;
    this.#terminal.write(bytes, () => {
      this.#parsed = shown;
    });
  }

  #handle(message: Control): void {
    const { status } = this.#callbacks;
    switch (message.type) {
      case "attached":
        this.#attach(message);
        break;
      case "gap":
        this.#shown = (this.#shown ?? 0) + (message.size ?? 0);
        this.#terminal.write(`\r\n\x1b[2m[${message.size ?? "some"} bytes lost]\x1b[0m\r\n`);
        break;
      case "resized":
        this.#applySize(message);
        break;
      case "sandbox":
        status(
          message.state === "running"
            ? ""
            : `The sandbox is ${message.state}.${message.state === "paused" ? " Typing resumes it." : ""}`,
        );
        break;
      case "problem":
        status(`${message.title}: ${message.detail}`);
        break;
      case "exit":
        this.#end(message);
        break;
    }
  }

  #attach(message: Control): void {
    this.#shown = message.offset ?? 0;
    this.#parsed ??= this.#shown;
    this.#wait = FIRST_WAIT_MS;
    this.#applySize(message);
    this.#callbacks.state("live");
    this.#callbacks.status("");
    this.#callbacks.attached();
  }

  /** All viewers share one size: the last one that was set. */
  #applySize({ cols, rows }: Partial<Size>): void {
    if (cols === undefined || rows === undefined) return;
    this.#size = { cols, rows };
    this.#terminal.resize(cols, rows);
  }

  #type(bytes: Uint8Array<ArrayBuffer>): void {
    // Replayed output contains queries that were answered then; answering again would type the answers as input.
    if (this.#parsed !== undefined && this.#parsed >= this.#replayed) this.#send(bytes);
  }

  #send(message: string | Uint8Array<ArrayBuffer>): void {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(message);
  }

  /** A connection can fail silently, and browsers do not expose WebSocket pings. */
  #restartTimer(): void {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => {
      this.#send(JSON.stringify({ type: "ping" }));
      this.#timer = setTimeout(() => this.#abandon(), ANSWERED_WITHIN_MS);
    }, PING_AFTER_MS);
  }

  #abandon(): void {
    if (this.#socket !== null) this.#socket.onclose = this.#socket.onmessage = null;
    this.#socket?.close();
    this.#lost();
  }

  #end({ state, exit_code, reason }: Control): void {
    this.#isOver = true;
    const code = exit_code === null || exit_code === undefined ? "" : `, exit code ${exit_code}`;
    this.#callbacks.status(`The terminal ended: ${state}${code}${reason ? ` (${reason})` : ""}.`);
    this.#callbacks.ended();
    this.#callbacks.state("over");
  }

  async #lost(code?: number): Promise<void> {
    clearTimeout(this.#timer);
    if (this.#isOver || code === ENDED) return;
    this.#callbacks.state("lost");
    const reason = await this.#callbacks.whyRefused();
    if (this.#isOver) return;
    if (reason !== null) return this.#callbacks.status(reason);
    this.#timer = setTimeout(() => this.#connect(), this.#wait);
    this.#wait = Math.min(this.#wait * 2, LONGEST_WAIT_MS);
  }
}
