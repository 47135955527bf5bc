import { type QueryClient, skipToken, useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect, useMemo, useState } from "react";
import type { Sandbox } from "../api/client.ts";
import { FLEET_KEY, sandboxKey } from "../live/sandboxes.ts";
import { matcher } from "./filter.ts";

const COUNT_EVERY_MS = 300;

/** Return a sandbox as it is in the cache; the row of a sandbox hears of no other. */
export function useCachedSandbox(id: string): Sandbox | undefined {
  return useQuery<Sandbox>({ queryKey: sandboxKey(id), queryFn: skipToken }).data;
}

export interface Fleet {
  /** Ids that match the query, newest first; null until the first read is complete. */
  ids: string[] | null;
  total: number;
  counts: Map<string, number>;
}

const NOTHING: Fleet = { ids: null, total: 0, counts: new Map() };

function read(cache: QueryClient, query: string): Fleet {
  const all = cache.getQueryData<string[]>(FLEET_KEY);
  if (all === undefined) return NOTHING;
  const matches = matcher(query);
  const counts = new Map<string, number>();
  const ids = all.filter((id) => {
    const sandbox = cache.getQueryData<Sandbox>(sandboxKey(id));
    if (sandbox === undefined) return false;
    counts.set(sandbox.state, (counts.get(sandbox.state) ?? 0) + 1);
    return matches(sandbox);
  });
  return { ids, total: all.length, counts };
}

/** Follow which sandboxes match a query; it is evaluated a few times a second, however many of them change. */
export function useFleet(query: string): Fleet {
  const cache = useQueryClient();
  const [version, setVersion] = useState(0);

  useEffect(() => {
    let timer: ReturnType<typeof setTimeout> | undefined;
    const count = () => {
      timer = undefined;
      setVersion((before) => before + 1);
    };
    const leave = cache.getQueryCache().subscribe(({ type, query: { queryKey } }) => {
      const concerns = queryKey[0] === FLEET_KEY[0] || queryKey[0] === "sandbox";
      if (concerns && (type === "updated" || type === "removed")) timer ??= setTimeout(count, COUNT_EVERY_MS);
    });
    return () => {
      leave();
      clearTimeout(timer);
    };
  }, [cache]);

  // biome-ignore lint/correctness/useExhaustiveDependencies: the version stands for the content of the cache
  return useMemo(() => read(cache, query), [cache, query, version]);
}
