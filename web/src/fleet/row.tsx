import { Link } from "@tanstack/react-router";
import type { MouseEvent } from "react";
import type { Sandbox } from "../api/client.ts";
import { deadlines } from "../live/deadlines.ts";
import { age } from "../live/durations.ts";
import { StateBadge } from "../ui/state-badge.tsx";
import { useTick } from "../ui/tick.ts";
import { useCachedSandbox } from "./queries.ts";

const TICK_MS = 5000;
export const COLUMNS =
  "grid grid-cols-[2rem_13rem_6.5rem_minmax(8rem,1fr)_minmax(10rem,2fr)_minmax(6rem,1fr)_5rem] gap-x-3 items-center";

interface RowProps {
  id: string;
  index: number;
  isNarrow: boolean;
  isCursor: boolean;
  isSelected: boolean;
  select: (id: string, event: { shiftKey: boolean }) => void;
}

const placeOf = ({ template, backend }: Sandbox): string => [template, backend].filter(Boolean).join(" on ");

function ownerOf({ user_id, session_id, metadata }: Sandbox): string {
  return [metadata.name, user_id, session_id].filter(Boolean).join(" · ");
}

const wordsOf = (sandbox: Sandbox): string =>
  [...deadlines(sandbox), sandbox.state_reason].filter(Boolean).join(" · ");

/** One sandbox of the fleet; rendered again only for its own changes and for time. */
export function FleetRow({ id, index, isNarrow, isCursor, isSelected, select }: RowProps) {
  const sandbox = useCachedSandbox(id);
  useTick(TICK_MS);
  if (sandbox === undefined) return null;
  const look = `h-full border-b border-line px-3 ${isSelected ? "bg-shade" : "bg-card hover:bg-shade"} ${isCursor ? "shadow-[inset_3px_0_0_var(--accent)]" : ""}`;
  const box = (
    <input
      type="checkbox"
      checked={isSelected}
      aria-label={`Select ${id}`}
      onChange={() => {}}
      onClick={(event: MouseEvent) => select(id, event)}
    />
  );
  const link = (
    <Link
      to="/sandboxes/$id"
      params={{ id }}
      className="truncate font-mono text-[0.92em] no-underline hover:underline"
    >
      {id}
    </Link>
  );
  if (isNarrow)
    return (
      <div
        role="row"
        aria-rowindex={index + 1}
        data-id={id}
        className={`flex flex-col justify-center gap-0.5 ${look}`}
      >
        <div className="flex items-center gap-3" role="cell">
          {box}
          <StateBadge state={sandbox.state} />
          <span className="ml-auto text-faint">{age(sandbox.created_at)}</span>
        </div>
        <div role="cell" className="truncate">
          {link}
        </div>
        <div role="cell" className="truncate text-faint">
          {wordsOf(sandbox)}
        </div>
        <div role="cell" className="truncate text-faint">
          {[placeOf(sandbox), ownerOf(sandbox)].filter(Boolean).join(" · ")}
        </div>
      </div>
    );
  return (
    <div role="row" aria-rowindex={index + 1} data-id={id} className={`${COLUMNS} ${look}`}>
      <span role="cell">{box}</span>
      <span role="cell" className="flex min-w-0">
        {link}
      </span>
      <span role="cell">
        <StateBadge state={sandbox.state} />
      </span>
      <span role="cell" className="truncate text-faint">
        {placeOf(sandbox)}
      </span>
      <span role="cell" className="truncate text-faint" title={wordsOf(sandbox)}>
        {wordsOf(sandbox)}
      </span>
      <span
        role="cell"
        className="truncate text-faint"
        title={Object.entries(sandbox.metadata)
          .map(([name, value]) => `${name}=${value}`)
          .join("\n")}
      >
        {ownerOf(sandbox)}
      </span>
      <span
        role="cell"
        className="text-right text-faint tabular-nums"
        title={new Date(sandbox.created_at).toLocaleString()}
      >
        {age(sandbox.created_at)}
      </span>
    </div>
  );
}
