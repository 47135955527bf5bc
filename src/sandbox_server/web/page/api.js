import { setClock } from "./formatting.js";

/** What the server says went wrong, or that it cannot be reached. */
export class Problem extends Error {
  constructor({ status = 0, code, title, detail }) {
    super(detail ? `${title}: ${detail}` : title);
    this.status = status;
    this.code = code;
  }
}

/** Tells, as `refused`, that nobody is signed in here any more. */
export const access = new EventTarget();

export async function call(method, path, { body, headers = {} } = {}) {
  const request = { method, headers, cache: "no-store" };
  if (body !== undefined) {
    request.body = JSON.stringify(body);
    request.headers = { ...headers, "Content-Type": "application/json" };
  }
  const answer = await fetch(path, request).catch(() => {
    throw new Problem({ code: "unreachable", title: "The server does not answer" });
  });
  setClock(answer.headers.get("Date"));
  const told = answer.headers.get("Content-Type")?.includes("json") ? await answer.json() : null;
  if (answer.ok) return told;
  if (answer.status === 401) access.dispatchEvent(new Event("refused"));
  throw new Problem({ status: answer.status, title: `The server answered ${answer.status}`, ...told });
}

export const get = path => call("GET", path);
export const post = (path, body, headers) => call("POST", path, { body, headers });

/** Go through a list, part by part. */
export async function* pages(path, query = {}) {
  let cursor = null;
  do {
    const asked = new URLSearchParams(query);
    if (cursor) asked.set("cursor", cursor);
    const page = await get(`${path}?${asked}`);
    yield page.items;
    cursor = page.next_cursor;
  } while (cursor);
}

/** A name for a request, under which it may be repeated. */
export function requestName() {
  // Not randomUUID, which browsers have only where there is TLS.
  return [...crypto.getRandomValues(new Uint8Array(16))].map(byte => byte.toString(16).padStart(2, "0")).join("");
}
