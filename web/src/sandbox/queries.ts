import { useQuery, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { api, type Sandbox, type TimelineEntry, unwrap } from "../api/client.ts";
import { sandboxKey } from "../live/sandboxes.ts";

/** Read a sandbox; the stream of events keeps it current. */
export function useSandbox(id: string) {
  return useQuery<Sandbox>({
    queryKey: sandboxKey(id),
    queryFn: () => unwrap(api.GET("/v1/sandboxes/{sandbox_id}", { params: { path: { sandbox_id: id } } })),
  });
}

const timelineKey = (id: string) => ["timeline", id] as const;

/** Read the timeline, again after each change of the sandbox. */
export function useTimeline(id: string) {
  const queries = useQueryClient();
  useEffect(
    () =>
      queries.getQueryCache().subscribe(({ type, query: { queryKey } }) => {
        const [kind, changed] = queryKey;
        if (type === "updated" && kind === "sandbox" && changed === id)
          queries.invalidateQueries({ queryKey: timelineKey(id) });
      }),
    [queries, id],
  );
  return useQuery<TimelineEntry[]>({ queryKey: timelineKey(id), queryFn: () => readTimeline(id) });
}

async function readTimeline(id: string): Promise<TimelineEntry[]> {
  const entries: TimelineEntry[] = [];
  let cursor: string | null = null;
  do {
    const params: { path: { sandbox_id: string }; query: { limit: number; cursor?: string } } = {
      path: { sandbox_id: id },
      query: cursor === null ? { limit: 200 } : { limit: 200, cursor },
    };
    const page: { items: TimelineEntry[]; next_cursor: string | null } = await unwrap(
      api.GET("/v1/sandboxes/{sandbox_id}/timeline", { params }),
    );
    entries.push(...page.items);
    cursor = page.next_cursor;
  } while (cursor !== null);
  return entries;
}
