/** A shared worker: holds the one stream of events of this browser, since a browser opens six connections to a server for all tabs. */

import { eventsUrl, type TenantEvent } from "./events.ts";
import { type Connection, follow } from "./stream.ts";

export type ToTab = { state: Connection } | { events: TenantEvent[] } | { missed: true };
export type FromTab = { root: string; headers: Record<string, string> } | { left: true };

const ports = new Set<MessagePort>();
let current: Connection = "connecting";
let leave: (() => void) | null = null;

function tell(message: ToTab): void {
  for (const port of ports) port.postMessage(message);
}

function begin({ root, headers }: { root: string; headers: Record<string, string> }): void {
  leave ??= follow<TenantEvent>({
    url: (after) => eventsUrl(root, after),
    headers,
    state: (state) => {
      current = state;
      tell({ state });
    },
    received: (events) => tell({ events }),
    missed: () => tell({ missed: true }),
    isOver: (status) => status === 401,
  });
}

function end(port: MessagePort): void {
  ports.delete(port);
  if (ports.size > 0) return;
  leave?.();
  leave = null;
}

addEventListener("connect", (event) => {
  const [port] = (event as MessageEvent).ports;
  if (port === undefined) return;
  port.onmessage = ({ data }: MessageEvent<FromTab>) => {
    if ("left" in data) return end(port);
    ports.add(port);
    begin(data);
    port.postMessage({ state: current } satisfies ToTab);
  };
});
