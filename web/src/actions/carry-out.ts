import { api, unwrap } from "../api/client.ts";
import { useLive } from "../app/live.tsx";
import { useFailures } from "../ui/toasts.tsx";
import type { Action } from "./calls.ts";

const AT_ONCE = 6;

function request(action: Action, id: string): Promise<unknown> {
  const path = { sandbox_id: id };
  if (action === "delete") return unwrap(api.DELETE("/v1/sandboxes/{sandbox_id}", { params: { path } }));
  if (action === "pause") return unwrap(api.POST("/v1/sandboxes/{sandbox_id}/pause", { params: { path } }));
  return unwrap(api.POST("/v1/sandboxes/{sandbox_id}/resume", { params: { path, query: { wait: 0 } } }));
}

/** Return a function that carries out an action on sandboxes, a few at a time, and shows what failed. */
export function useActions(): (action: Action, ids: Iterable<string>) => Promise<void> {
  const { sandboxes } = useLive();
  const fail = useFailures();
  return async (action, ids) => {
    const waiting = [...ids];
    const problems: unknown[] = [];
    const work = async () => {
      for (let id = waiting.shift(); id !== undefined; id = waiting.shift()) {
        await request(action, id).catch((problem: unknown) => problems.push(problem));
        sandboxes.refresh(id);
      }
    };
    await Promise.all(Array.from({ length: AT_ONCE }, work));
    if (problems.length > 1)
      fail(new Error(`${problems.length} sandboxes: could not ${action}. First: ${String(problems[0])}`));
    else if (problems.length === 1) fail(problems[0]);
  };
}
