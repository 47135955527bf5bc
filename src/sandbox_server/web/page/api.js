import { setClock } from "./formatting.js";

/** An error response of the server, or a failure to reach it. */
export class Problem extends Error {
  constructor({ status = 0, code, title, detail }) {
    super(detail ? `${title}: ${detail}` : title);
    this.status = status;
    this.code = code;
  }
}

/** Dispatches `refused` when the session has ended. */
export const access = new EventTarget();

export async function call(method, path, { body, headers = {} } = {}) {
  const request = { method, headers, cache: "no-store" };
  if (body !== undefined) {
    request.body = JSON.stringify(body);
    request.headers = { ...headers, "Content-Type": "application/json" };
  }
  const response = await fetch(path, request).catch(() => {
    throw new Problem({ code: "unreachable", title: "Server unreachable" });
  });
  setClock(response.headers.get("Date"));
  const document = response.headers.get("Content-Type")?.includes("json") ? await response.json() : null;
  if (response.ok) return document;
  if (response.status === 401) access.dispatchEvent(new Event("refused"));
  throw new Problem({ status: response.status, title: `HTTP error ${response.status}`, ...document });
}

export const get = path => call("GET", path);
export const post = (path, body, headers) => call("POST", path, { body, headers });

/** Iterate over a paginated list, page by page. */
export async function* pages(path, query = {}) {
  let cursor = null;
  do {
    const parameters = new URLSearchParams(query);
    if (cursor) parameters.set("cursor", cursor);
    const page = await get(`${path}?${parameters}`);
    yield page.items;
    cursor = page.next_cursor;
  } while (cursor);
}

export function idempotencyKey() {
  // Not randomUUID, which browsers provide only with TLS.
  return [...crypto.getRandomValues(new Uint8Array(16))].map(byte => byte.toString(16).padStart(2, "0")).join("");
}
