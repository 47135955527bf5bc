import { get } from "./api.js";

const FIRST_WAIT_MS = 250, LONGEST_WAIT_MS = 5000;
const SILENCE_MS = 25_000, ANSWERED_WITHIN_MS = 10_000;
const ENDED = 1000;

/**
 * The line between a terminal on the screen and the one in a sandbox: docs/terminals.md says what goes over it.
 *
 * It is connected again at the byte that was shown last, whatever broke it, until the terminal has ended.
 */
export class TerminalConnection {
  constructor(path, found, { terminal, state, status, attached, ended }) {
    this._path = path;
    this._terminal = terminal;
    this._tell = { state, status, attached, ended };
    this._shown = null;
    this._replayed = found.size; // what was shown before we came
    this._wait = FIRST_WAIT_MS;
    this._size = { cols: found.cols, rows: found.rows };
    this._encoder = new TextEncoder();
    terminal.onData(text => this._type(this._encoder.encode(text)));
    terminal.onBinary(text => this._type(Uint8Array.from(text, letter => letter.charCodeAt(0))));
    this._connect();
  }

  /** Give the terminal another size, here and there. */
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
      this._heard();
      if (typeof data === "string") this._heed(JSON.parse(data));
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

  _heed(said) {
    switch (said.type) {
      case "attached":
        this._shown = said.offset;
        this._parsed ??= said.offset;
        this._wait = FIRST_WAIT_MS;
        this._take(said);
        this._tell.state("live");
        this._tell.status("");
        return this._tell.attached();
      case "gap":
        this._shown += said.size ?? 0;
        return this._terminal.write(`\r\n\x1b[2m[${said.size ?? "some"} bytes are missing here]\x1b[0m\r\n`);
      case "resized":
        return this._take(said);
      case "sandbox":
        return this._tell.status(said.state === "running" ? "" : `The sandbox is ${said.state}.${said.state === "paused" ? " It resumes when you type." : ""}`);
      case "problem":
        return this._tell.status(`${said.title}: ${said.detail}`);
      case "exit":
        return this._end(said);
    }
  }

  // Whoever gave it a size last, all see it so.
  _take({ cols, rows }) {
    this._size = { cols, rows };
    this._terminal.resize(cols, rows);
  }

  _type(bytes) {
    // What programs once asked of the terminal was answered then, and would be typed anew.
    if (this._parsed === undefined || this._parsed < this._replayed) return;
    this._send(bytes);
  }

  _send(message) {
    if (this._socket.readyState === WebSocket.OPEN) this._socket.send(message);
  }

  // A line can be dead without a word; the browser tells of no pings.
  _heard() {
    clearTimeout(this._timer);
    this._timer = setTimeout(() => {
      this._send(JSON.stringify({ type: "ping" }));
      this._timer = setTimeout(() => this._abandon(), ANSWERED_WITHIN_MS);
    }, SILENCE_MS);
  }

  _abandon() {
    this._socket.onclose = this._socket.onmessage = null;
    this._socket.close();
    this._lost();
  }

  _end({ state, exit_code, reason }) {
    this._hasEnded = true;
    const code = exit_code === null || exit_code === undefined ? "" : `, exit code ${exit_code}`;
    this._tell.status(`It has ended: ${state}${code}${reason ? ` (${reason})` : ""}.`);
    this._tell.ended();
    this._tell.state("over");
  }

  async _lost(code) {
    clearTimeout(this._timer);
    if (this._isClosed || this._hasEnded || code === ENDED) return;
    this._tell.state("lost");
    try {
      await get(this._path); // a refused handshake tells a browser nothing
    } catch (problem) {
      if (problem.status === 401) return;
      if (problem.status === 404) return this._tell.status(problem.message);
    }
    if (this._isClosed) return;
    this._timer = setTimeout(() => this._connect(), this._wait);
    this._wait = Math.min(this._wait * 2, LONGEST_WAIT_MS);
  }
}
