import { get } from "./api.js";

const FIRST_WAIT_MS = 250, LONGEST_WAIT_MS = 5000;
const PING_AFTER_MS = 25_000, ANSWERED_WITHIN_MS = 10_000;
const ENDED = 1000;

/**
 * The WebSocket between the terminal on the screen and the one in the sandbox; its protocol is in docs/terminals.md.
 *
 * It reconnects and resumes after the last byte shown, until the terminal has ended.
 */
export class TerminalConnection {
  constructor(path, found, { terminal, state, status, attached, ended }) {
    this._path = path;
    this._terminal = terminal;
    this._callbacks = { state, status, attached, ended };
    this._shown = null;
    this._replayed = found.size; // output from before this connection
    this._wait = FIRST_WAIT_MS;
    this._size = { cols: found.cols, rows: found.rows };
    this._encoder = new TextEncoder();
    terminal.onData(text => this._type(this._encoder.encode(text)));
    terminal.onBinary(text => this._type(Uint8Array.from(text, letter => letter.charCodeAt(0))));
    this._connect();
  }

  /** Resize the terminal, locally and in the sandbox. */
  resize({ cols, rows }) {
    this._terminal.resize(cols, rows);
    if (cols === this._size.cols && rows === this._size.rows) return;
    this._size = { cols, rows };
    this._send(JSON.stringify({ type: "resize", cols, rows }));
  }

  close() {
    this._isClosed = true;
    clearTimeout(this._timer);
    this._socket?.close();
  }

  _connect() {
    const after = this._shown === null ? "" : `?after=${this._shown}`;
    const url = new URL(`${this._path}${after}`, location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new WebSocket(url);
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }) => {
      this._restartTimer();
      if (typeof data === "string") this._handle(JSON.parse(data));
      else this._show(new Uint8Array(data));
    };
    socket.onclose = ({ code }) => this._lost(code);
    this._socket = socket;
  }

  _show(bytes) {
    this._shown += bytes.length;
    const shown = this._shown;
    this._terminal.write(bytes, () => {
      this._parsed = shown;
    });
  }

  _handle(message) {
    switch (message.type) {
      case "attached":
        this._shown = message.offset;
        this._parsed ??= message.offset;
        this._wait = FIRST_WAIT_MS;
        this._applySize(message);
        this._callbacks.state("live");
        this._callbacks.status("");
        return this._callbacks.attached();
      case "gap":
        this._shown += message.size ?? 0;
        return this._terminal.write(`\r\n\x1b[2m[${message.size ?? "some"} bytes lost]\x1b[0m\r\n`);
      case "resized":
        return this._applySize(message);
      case "sandbox":
        return this._callbacks.status(message.state === "running" ? "" : `The sandbox is ${message.state}.${message.state === "paused" ? " Type to resume it." : ""}`);
      case "problem":
        return this._callbacks.status(`${message.title}: ${message.detail}`);
      case "exit":
        return this._end(message);
    }
  }

  // All viewers share one size: the last one that was set.
  _applySize({ cols, rows }) {
    this._size = { cols, rows };
    this._terminal.resize(cols, rows);
  }

  _type(bytes) {
    // Replayed output contains queries that were answered then; answering again would type the answers as input.
    if (this._parsed === undefined || this._parsed < this._replayed) return;
    this._send(bytes);
  }

  _send(message) {
    if (this._socket.readyState === WebSocket.OPEN) this._socket.send(message);
  }

  // A connection can fail silently, and browsers do not expose WebSocket pings.
  _restartTimer() {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => {
      this._send(JSON.stringify({ type: "ping" }));
      this._timer = setTimeout(() => this._abandon(), ANSWERED_WITHIN_MS);
    }, PING_AFTER_MS);
  }

  _abandon() {
    this._socket.onclose = this._socket.onmessage = null;
    this._socket.close();
    this._lost();
  }

  _end({ state, exit_code, reason }) {
    this._hasEnded = true;
    const code = exit_code === null || exit_code === undefined ? "" : `, exit code ${exit_code}`;
    this._callbacks.status(`Terminal ended: ${state}${code}${reason ? ` (${reason})` : ""}.`);
    this._callbacks.ended();
    this._callbacks.state("over");
  }

  async _lost(code) {
    clearTimeout(this._timer);
    if (this._isClosed || this._hasEnded || code === ENDED) return;
    this._callbacks.state("lost");
    try {
      await get(this._path); // browsers do not expose why a handshake was refused
    } catch (problem) {
      if (problem.status === 401) return;
      if (problem.status === 404) return this._callbacks.status(problem.message);
    }
    if (this._isClosed) return;
    this._timer = setTimeout(() => this._connect(), this._wait);
    this._wait = Math.min(this._wait * 2, LONGEST_WAIT_MS);
  }
}
