import { useQuery, useQueryClient } from "@tanstack/react-query";
import { lazy, Suspense, useRef, useState } from "react";
import { limitsOf } from "../actions/limits.ts";
import { api, idempotencyKey, type Sandbox, unwrap } from "../api/client.ts";
import { useSession } from "../app/session.tsx";
import { ago } from "../live/durations.ts";
import { Button } from "../ui/button.tsx";
import { Confirm } from "../ui/confirm.tsx";
import { useFailures } from "../ui/toasts.tsx";

const TerminalScreen = lazy(() =>
  import("../terminal/screen.tsx").then(({ TerminalScreen }) => ({ default: TerminalScreen })),
);

const COLS = 80; // until the screen is measured
const ROWS = 24;

/** The terminals of a sandbox, one of them on screen. */
export function TerminalsTab({ sandbox: { id, state } }: { sandbox: Sandbox }) {
  const { mayChange } = useSession();
  const queries = useQueryClient();
  const fail = useFailures();
  const [chosen, setChosen] = useState<string | null>(null);
  const [isKilling, setIsKilling] = useState(false);
  const first = useRef<HTMLButtonElement>(null);
  const key = ["terminals", id];
  const { data: terminals = [] } = useQuery({
    queryKey: key,
    queryFn: async () =>
      (
        await unwrap(
          api.GET("/v1/sandboxes/{sandbox_id}/terminals", {
            params: { path: { sandbox_id: id }, query: { limit: 50 } },
          }),
        )
      ).items,
    refetchInterval: 5000,
  });
  const shown = terminals.find((terminal) => terminal.id === chosen) ?? terminals[0];

  async function create() {
    const params = { path: { sandbox_id: id }, header: { "Idempotency-Key": idempotencyKey() } };
    try {
      const made = await unwrap(
        api.POST("/v1/sandboxes/{sandbox_id}/terminals", { params, body: { cols: COLS, rows: ROWS } }),
      );
      await queries.invalidateQueries({ queryKey: key });
      setChosen(made.id);
    } catch (problem) {
      fail(problem);
    }
  }

  async function kill(terminalId: string) {
    const params = { path: { sandbox_id: id, terminal_id: terminalId } };
    await unwrap(api.DELETE("/v1/sandboxes/{sandbox_id}/terminals/{terminal_id}", { params })).catch(fail);
    await queries.invalidateQueries({ queryKey: key });
  }

  return (
    <div className="flex min-h-0 flex-1 flex-col gap-2">
      <div className="flex flex-wrap items-center gap-2">
        {terminals.map((terminal) => (
          <Button
            key={terminal.id}
            ref={terminal === shown ? first : null}
            aria-pressed={terminal === shown}
            className="aria-pressed:bg-shade"
            onClick={() => setChosen(terminal.id)}
          >
            {terminal.cmd ?? "shell"}, {ago(terminal.created_at)}
          </Button>
        ))}
        <Button kind="main" {...limitsOf(mayChange)} onClick={create}>
          New terminal{state === "paused" ? " (resumes the sandbox)" : ""}
        </Button>
        {shown !== undefined && (
          <Button
            kind="danger"
            className="ml-auto"
            {...limitsOf(mayChange)}
            onClick={() => setIsKilling(true)}
          >
            Kill terminal
          </Button>
        )}
      </div>
      {shown === undefined ? (
        <p className="text-faint">No terminal is open.</p>
      ) : (
        <Suspense fallback={<p className="text-faint">Loading…</p>}>
          <TerminalScreen
            key={shown.id}
            sandboxId={id}
            terminalId={shown.id}
            mayType={mayChange}
            left={() => first.current?.focus()}
          />
        </Suspense>
      )}
      {isKilling && shown !== undefined && (
        <Confirm
          title="Kill this terminal?"
          act="Kill"
          close={() => setIsKilling(false)}
          confirmed={() => kill(shown.id)}
        >
          Its processes are killed.
        </Confirm>
      )}
    </div>
  );
}
