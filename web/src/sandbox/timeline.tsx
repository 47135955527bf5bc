import type { TimelineEntry } from "../api/client.ts";
import { Moment } from "../ui/moment.tsx";
import { useTimeline } from "./queries.ts";

function originOf({ cause, actor }: TimelineEntry): string {
  if (actor === null) return cause ?? "";
  const by =
    actor.kind === "key"
      ? `by key ${actor.id}`
      : actor.kind === "server"
        ? "by the server"
        : `by a ${actor.kind}`;
  return [cause, by].filter(Boolean).join(", ");
}

const wordOf = ({ type }: TimelineEntry): string => type.replace(/^sandbox\./, "").replaceAll("_", " ");

/** Changes of a sandbox with their causes, newest first. */
export function Timeline({ id }: { id: string }) {
  const { data: entries = [] } = useTimeline(id);
  return (
    <section aria-labelledby="timeline" className="min-w-0 rounded-lg border border-line bg-card p-4">
      <h2 id="timeline" className="mb-2 font-semibold">
        Timeline
      </h2>
      <ol aria-labelledby="timeline" className="max-h-96 overflow-auto">
        {entries.toReversed().map((entry) => (
          <li
            key={entry.seq}
            className="grid grid-cols-[5rem_1fr] gap-x-3 border-t border-line py-1.5 first:border-0"
          >
            <Moment at={entry.at} />
            <span>
              <strong className="font-semibold">{wordOf(entry)}</strong>
              {entry.reason && ` · ${entry.reason}`}
              <span className="block text-faint">{originOf(entry)}</span>
            </span>
          </li>
        ))}
      </ol>
    </section>
  );
}
