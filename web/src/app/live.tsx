import { useQueryClient } from "@tanstack/react-query";
import { createContext, type ReactNode, useContext, useEffect, useMemo, useState } from "react";
import { api, PAGE_HEADER, root, type Sandbox, unwrap } from "../api/client.ts";
import { SandboxCache, type SandboxReader } from "../live/sandboxes.ts";
import { followEvents } from "../live/shared.ts";
import type { Connection } from "../live/stream.ts";
import { useSession } from "./session.tsx";

const LARGEST_PAGE = 200;

interface Live {
  connection: Connection;
  /** When the connection was lost, in milliseconds; null while it is live. */
  lostAt: number | null;
  sandboxes: SandboxCache;
}

const LiveContext = createContext<Live | null>(null);

export function useLive(): Live {
  const found = useContext(LiveContext);
  if (found === null) throw new Error("useLive is for pages inside of a LiveProvider.");
  return found;
}

const reader: SandboxReader = {
  async *all() {
    let cursor: string | null = null;
    do {
      const query: { limit: number; cursor?: string } = cursor
        ? { limit: LARGEST_PAGE, cursor }
        : { limit: LARGEST_PAGE };
      const page: { items: Sandbox[]; next_cursor: string | null } = await unwrap(
        api.GET("/v1/sandboxes", { params: { query } }),
      );
      yield page.items;
      cursor = page.next_cursor;
    } while (cursor !== null);
  },
  async some(ids) {
    const found: Sandbox[] = [];
    for (let start = 0; start < ids.length; start += LARGEST_PAGE) {
      const query = { id: ids.slice(start, start + LARGEST_PAGE), limit: LARGEST_PAGE };
      found.push(...(await unwrap(api.GET("/v1/sandboxes", { params: { query } }))).items);
    }
    return found;
  },
};

/** Follow the tenant's events, and keep the cached sandboxes current with them. */
export function LiveProvider({ children }: { children: ReactNode }) {
  const queries = useQueryClient();
  const { login } = useSession();
  const [connection, setConnection] = useState<Connection>("connecting");
  const [lostAt, setLostAt] = useState<number | null>(null);
  const sandboxes = useMemo(() => new SandboxCache(queries, reader), [queries]);

  useEffect(() => {
    const load = () => sandboxes.loadUntilRead();
    let isLoaded = false;
    sandboxes.open();
    const leave = followEvents({
      root,
      headers: PAGE_HEADER,
      login: login.id,
      state: (state) => {
        setConnection(state);
        setLostAt((was) => (state === "live" ? null : (was ?? Date.now())));
        // The stream first, then everything: nothing falls between.
        if (state === "live" && !isLoaded) {
          isLoaded = true;
          load();
        }
      },
      received: (events) => {
        for (const event of events) {
          if (event.type === "gap") load();
          else if (event.sandbox_id !== null) sandboxes.refresh(event.sandbox_id);
        }
      },
      missed: load,
    });
    return () => {
      leave();
      sandboxes.close();
    };
  }, [sandboxes, login.id]);

  const value = useMemo(() => ({ connection, lostAt, sandboxes }), [connection, lostAt, sandboxes]);
  return <LiveContext value={value}>{children}</LiveContext>;
}
