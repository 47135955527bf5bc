// The DevTools protocol of the browser, over one WebSocket; the link's token is in this page's path.

const BASE = location.pathname.replace(/\/live\/?$/, "");
const LINK_ENDED = 4401;

export class LinkRefused extends Error {}

export async function readLink() {
  const response = await fetch(`${BASE}/live/state`, { cache: "no-store" });
  if (response.ok) return response.json();
  const problem = await response.json().catch(() => ({}));
  const text = problem.detail ?? `The server answered ${response.status}.`;
  throw response.status === 401 || response.status === 403 ? new LinkRefused(text) : new Error(text);
}

export class Connection {
  #socket;
  #onEvent;
  #pending = new Map();
  #lastId = 0;

  static open({ onEvent, onClose }) {
    const url = new URL(`${BASE}/devtools/browser`, location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new WebSocket(url);
    const connection = new Connection(socket, onEvent);
    return new Promise((resolve, reject) => {
      socket.addEventListener("open", () => resolve(connection));
      socket.addEventListener("close", (event) => {
        connection.#end();
        const error = event.code === LINK_ENDED ? new LinkRefused(event.reason) : new Error(event.reason);
        reject(error);
        onClose(connection, error);
      });
    });
  }

  constructor(socket, onEvent) {
    this.#socket = socket;
    this.#onEvent = onEvent;
    socket.addEventListener("message", (event) => this.#take(JSON.parse(event.data)));
  }

  call(method, params = {}, sessionId = undefined) {
    if (this.#socket.readyState !== WebSocket.OPEN) return Promise.reject(new Error("Disconnected."));
    const id = ++this.#lastId;
    this.#socket.send(JSON.stringify({ id, method, params, sessionId }));
    return new Promise((resolve, reject) => this.#pending.set(id, { resolve, reject }));
  }

  close() {
    this.#socket.close();
  }

  #take(message) {
    const waiting = this.#pending.get(message.id);
    if (waiting === undefined) {
      if (message.method !== undefined) this.#onEvent(message, this);
      return;
    }
    this.#pending.delete(message.id);
    if (message.error === undefined) waiting.resolve(message.result);
    else waiting.reject(new Error(message.error.message));
  }

  #end() {
    for (const { reject } of this.#pending.values()) reject(new Error("Disconnected."));
    this.#pending.clear();
  }
}
