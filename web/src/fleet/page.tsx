import { Toast } from "@base-ui/react/toast";
import { getRouteApi, useNavigate } from "@tanstack/react-router";
import { useRef, useState } from "react";
import { useSession } from "../app/session.tsx";
import { Button } from "../ui/button.tsx";
import { useKeys } from "../ui/keys.ts";
import { useIsNarrow } from "../ui/media.ts";
import { Rows } from "../ui/rows.tsx";
import { CreateDialog } from "./create.tsx";
import { Empty } from "./empty.tsx";
import { toggleState } from "./filter.ts";
import { useFleet } from "./queries.ts";
import { COLUMNS, FleetRow } from "./row.tsx";
import { useSelection } from "./selection.ts";
import { SelectionBar } from "./selection-bar.tsx";

const ROW_PX = 34;
const CARD_PX = 104;
const HEADERS = ["", "Sandbox", "State", "Template", "What happens next", "Owner", "Age"];
const route = getRouteApi("/");

/** All sandboxes, updated live. */
export function FleetPage() {
  const { q = "" } = route.useSearch();
  const navigate = useNavigate();
  const { mayChange } = useSession();
  const { ids, total, counts } = useFleet(q);
  const shown = ids ?? [];
  const selection = useSelection(shown);
  const isNarrow = useIsNarrow();
  const [cursor, setCursor] = useState(-1);
  const [isCreating, setIsCreating] = useState(false);
  const search = useRef<HTMLInputElement>(null);
  const { add } = Toast.useToastManager();

  const setQuery = (query: string) => navigate({ to: "/", search: query ? { q: query } : {}, replace: true });
  const move = (by: number) => setCursor((before) => Math.max(0, Math.min(shown.length - 1, before + by)));
  const current = shown[cursor];
  useKeys({
    "/": () => search.current?.focus(),
    n: () => mayChange && setIsCreating(true),
    j: () => move(1),
    k: () => move(-1),
    x: (event) => current !== undefined && selection.toggle(current, event),
    Enter: () => current !== undefined && navigate({ to: "/sandboxes/$id", params: { id: current } }),
    Escape: () => selection.replace([]),
  });

  return (
    <div className="flex h-full flex-col">
      <div className="flex flex-wrap items-center gap-2 px-4 py-3">
        <h1 className="mr-2 text-lg font-semibold">Fleet</h1>
        <input
          ref={search}
          type="search"
          value={q}
          onChange={(event) => setQuery(event.target.value)}
          onKeyDown={(event) => event.key === "Escape" && event.currentTarget.blur()}
          placeholder="state:running template:agent user:… or any text"
          aria-label="Filter"
          className="min-w-56 flex-1 rounded-md border border-line bg-card px-3 py-1"
        />
        <Button kind="main" disabled={!mayChange} onClick={() => setIsCreating(true)}>
          New sandbox
        </Button>
      </div>
      <StateCounts counts={counts} query={q} setQuery={setQuery} summary={summaryOf(ids, total, q)} />
      {ids?.length === 0 && q === "" ? (
        <Empty />
      ) : (
        <div
          role="table"
          aria-label="Sandboxes"
          aria-rowcount={shown.length}
          className="flex min-h-0 flex-1 flex-col border-t border-line"
        >
          {!isNarrow && <ColumnHeaders />}
          <Rows
            count={shown.length}
            height={isNarrow ? CARD_PX : ROW_PX}
            label="Sandboxes"
            cursor={cursor}
            row={(index) => {
              const id = shown[index];
              if (id === undefined) return null;
              const isSelected = selection.ids.has(id);
              return (
                <FleetRow
                  key={id}
                  {...{ id, index, isNarrow, isSelected }}
                  isCursor={index === cursor}
                  select={selection.toggle}
                />
              );
            }}
          />
        </div>
      )}
      {selection.ids.size > 0 && (
        <SelectionBar ids={[...selection.ids]} mayChange={mayChange} clear={() => selection.replace([])} />
      )}
      {isCreating && (
        <CreateDialog
          close={() => setIsCreating(false)}
          created={({ id }) => add({ title: `Creating sandbox ${id}…` })}
        />
      )}
    </div>
  );
}

function summaryOf(ids: string[] | null, total: number, query: string): string {
  if (ids === null) return "Loading…";
  return query === "" ? `${ids.length} sandboxes` : `${ids.length} of ${total} sandboxes`;
}

function ColumnHeaders() {
  return (
    <div
      role="row"
      className={`${COLUMNS} overflow-y-hidden border-b border-line px-3 py-1 text-faint [scrollbar-gutter:stable]`}
    >
      {HEADERS.map((name) => (
        <span key={name} role="columnheader" className={name === "Age" ? "text-right" : ""}>
          {name || <span className="sr-only">Selected</span>}
        </span>
      ))}
    </div>
  );
}

interface StateCountsProps {
  counts: Map<string, number>;
  query: string;
  setQuery: (query: string) => void;
  summary: string;
}

function StateCounts({ counts, query, setQuery, summary }: StateCountsProps) {
  return (
    <div className="flex flex-wrap items-center gap-1 px-4 pb-2 text-faint">
      <span role="status" className="mr-2">
        {summary}
      </span>
      {[...counts].sort().map(([state, number]) => (
        <Button
          key={state}
          kind="quiet"
          className="px-2 py-0 aria-pressed:bg-shade aria-pressed:text-text"
          aria-pressed={query.split(/\s+/).includes(`state:${state}`)}
          onClick={() => setQuery(toggleState(query, state))}
        >
          {state} {number}
        </Button>
      ))}
    </div>
  );
}
