import createClient, { type Middleware } from "openapi-fetch";
import { setServerTime } from "../live/clock.ts";
import { Problem, toProblem } from "./problem.ts";
import type { components, paths } from "./schema.d.ts";

type Schemas = components["schemas"];
export type Sandbox = Schemas["SandboxRead"];
export type SandboxState = Schemas["SandboxState"];
export type Login = Schemas["LoginRead"];
export type TimelineEntry = Schemas["TimelineEntry"];
export type Output = Schemas["LogRecord"];
export type LogEntry = Output | Schemas["LogEvent"] | Schemas["LogGap"];

/** Proves to the server that a request comes from a script of its own page: other origins cannot set it. */
export const PAGE_HEADER = { "X-Sandbox-Page": "1" };

/** Dispatches `signed-out` when the session has ended. */
export const session = new EventTarget();

export const base = new URL(".", document.baseURI).href;
/** Where the API is: the page is served one level below it. */
export const root = new URL("../", base).href;

const watch: Middleware = {
  onResponse({ response }) {
    setServerTime(response.headers.get("Date"));
    if (response.status === 401) session.dispatchEvent(new Event("signed-out"));
  },
  onError() {
    return new Problem({ code: "unreachable", title: "Server unreachable" });
  },
};

export const api = createClient<paths>({ baseUrl: root, headers: PAGE_HEADER, cache: "no-store" });
api.use(watch);

/** Return the document of an answer, or throw its problem. */
export async function unwrap<Data>(
  answer: Promise<{ data?: Data; error?: unknown; response: Response }>,
): Promise<Data> {
  const { data, error, response } = await answer;
  if (!response.ok) throw toProblem(error, response.status);
  return data as Data;
}

/** Make a key under which a repeated request has its effect once. */
export function idempotencyKey(): string {
  // Not randomUUID, which browsers provide only with TLS.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), (byte) =>
    byte.toString(16).padStart(2, "0"),
  ).join("");
}
