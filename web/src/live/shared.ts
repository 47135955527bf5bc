import { eventsUrl, type TenantEvent } from "./events.ts";
import type { FromTab, ToTab } from "./events-worker.ts";
import workerUrl from "./events-worker.ts?sharedworker&url";
import { type Connection, follow } from "./stream.ts";

interface EventOptions {
  root: string;
  headers: Record<string, string>;
  /** The login; each has a stream of its own. */
  login: string;
  received: (events: TenantEvent[]) => void;
  state: (state: Connection) => void;
  missed: () => void;
}

/** Follow the tenant's events by one stream for all tabs of the browser, or one of this tab where there are no shared workers. */
export function followEvents(options: EventOptions): () => void {
  return typeof SharedWorker === "undefined" ? followAlone(options) : followTogether(options);
}

function followAlone({ root, headers, received, state, missed }: EventOptions): () => void {
  return follow<TenantEvent>({
    url: (after) => eventsUrl(root, after),
    headers,
    received,
    state,
    missed,
    isOver: (status) => status === 401,
    page: document,
  });
}

function followTogether({ root, headers, login, received, state, missed }: EventOptions): () => void {
  const { port } = new SharedWorker(trusted(workerUrl), { type: "module", name: login });
  const say = (message: FromTab) => port.postMessage(message);
  const join = () => say({ root, headers });
  const part = () => say({ left: true });
  port.onmessage = ({ data }: MessageEvent<ToTab>) => {
    if ("state" in data) state(data.state);
    else if ("events" in data) received(data.events);
    else missed();
  };
  const show = ({ persisted }: PageTransitionEvent) => {
    if (!persisted) return;
    join();
    missed(); // nothing was received while the page was kept for the way back
  };
  addEventListener("pagehide", part);
  addEventListener("pageshow", show);
  join();
  return () => {
    removeEventListener("pagehide", part);
    removeEventListener("pageshow", show);
    part();
    port.close();
  };
}

interface TrustedTypes {
  createPolicy(
    name: string,
    rules: { createScriptURL: (url: string) => string },
  ): { createScriptURL: (url: string) => string };
}

const trustedTypes = (globalThis as { trustedTypes?: TrustedTypes }).trustedTypes;
const workers = trustedTypes?.createPolicy("workers", {
  createScriptURL: (url) => {
    if (new URL(url, location.href).origin !== location.origin)
      throw new TypeError(`${url} is not from this server.`);
    return url;
  },
});

/** Mark the address of a worker as ours, which the page's policy requires. */
function trusted(url: string): string {
  return workers?.createScriptURL(url) ?? url;
}
