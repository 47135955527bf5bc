// Requests with the link's ticket, which is the only credential of this page.

const TICKET = new URLSearchParams(location.search).get("ticket") ?? "";
const BASE = location.pathname.replace(/\/$/, "");

export class LinkRefused extends Error {}

export async function readState() {
  return answerOf(await fetch(urlOf("state"), { cache: "no-store" }));
}

export async function setHolder(holder) {
  return answerOf(await fetch(urlOf("control"), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ holder }),
  }));
}

export function viewerUrl(mode) {
  const url = new URL(urlOf("vnc", { mode }), location.href);
  url.protocol = url.protocol.replace("http", "ws");
  return url.href;
}

function urlOf(name, query = {}) {
  return `${BASE}/${name}?${new URLSearchParams({ ...query, ticket: TICKET })}`;
}

async function answerOf(response) {
  if (response.ok) return response.json();
  const problem = await response.json().catch(() => ({}));
  const text = problem.detail ?? `The server answered ${response.status}.`;
  throw response.status === 401 ? new LinkRefused(text) : new Error(text);
}
