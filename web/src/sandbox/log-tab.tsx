import { useEffect, useMemo, useRef, useState, useSyncExternalStore } from "react";
import { api, type LogEntry, PAGE_HEADER, root, unwrap } from "../api/client.ts";
import { type Connection, follow } from "../live/stream.ts";
import { asText, findLines, nextFound } from "../log/find.ts";
import { type Line, LogStore } from "../log/store.ts";
import { LogLines } from "../log/view.tsx";
import { Button } from "../ui/button.tsx";
import { copyText } from "../ui/clipboard.ts";
import { Dialog } from "../ui/dialog.tsx";
import { useKeys } from "../ui/keys.ts";
import { save } from "../ui/save.ts";

const SOURCES = {
  events: "Events",
  command: "Commands",
  service: "Services",
  agent: "Agents",
  code: "Code",
  terminal: "Terminals",
};
type Source = keyof typeof SOURCES;
const USUAL: Source[] = ["events", "command", "service", "agent", "code"];
const FIRST_RECORDS = 2000;
const MOST_DESCRIBED = 100; // each is a request
const ENDED = new Set(["stopped", "failed"]);

interface LogTabProps {
  id: string;
  state: string;
}

/** Everything that a sandbox said and did, in one log. */
export function LogTab({ id, state }: LogTabProps) {
  const [sources, setSources] = useState<ReadonlySet<Source>>(new Set(USUAL));
  const [isFollowing, setFollowing] = useState(true);
  const [query, setQuery] = useState("");
  const [target, setTarget] = useState<number | null>(null);
  const [figure, setFigure] = useState<Line | null>(null);
  const search = useRef<HTMLInputElement>(null);
  const store = useMemo(() => new LogStore(), []);
  const connection = useLogStream(store, id, sources, ENDED.has(state));
  const version = useSyncExternalStore(store.subscribe, () => store.version);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the version stands for the lines
  const found = useMemo(() => findLines(store.lines, query), [store, query, version]);

  const go = (isBackwards: boolean) => {
    setFollowing(false);
    setTarget((current) => nextFound(found, current, isBackwards));
  };
  useKeys({
    f: () => search.current?.focus(),
    n: () => go(false),
    N: () => go(true),
    End: () => setFollowing(true),
  });

  return (
    <div className="flex min-h-0 flex-1 flex-col gap-2">
      <div className="flex flex-wrap items-center gap-2">
        <SourceChoice chosen={sources} choose={setSources} />
        <input
          ref={search}
          type="search"
          value={query}
          aria-label="Find in log"
          placeholder="Find (f)"
          className="ml-auto w-44 rounded-md border border-line bg-card px-2 py-1"
          onChange={(event) => setQuery(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "Enter") go(event.shiftKey);
            if (event.key === "Escape") event.currentTarget.blur();
          }}
        />
        <span role="status" className="text-faint tabular-nums">
          {query !== "" && (found.length === 1 ? "1 line" : `${found.length} lines`)}
        </span>
        <Button kind="quiet" onClick={() => copyText(asText(store.lines))}>
          Copy
        </Button>
        <Button kind="quiet" onClick={() => save(`${id}.log`, asText(store.lines))}>
          Download
        </Button>
        <Button aria-pressed={isFollowing} onClick={() => setFollowing(!isFollowing)}>
          {isFollowing ? "Following" : "Follow"}
        </Button>
      </div>
      {store.lines.length === 0 && (
        <p className="text-faint">{connection === "connecting" ? "Loading…" : "No log entries yet."}</p>
      )}
      <LogLines {...{ store, target, isFollowing, setFollowing }} found={new Set(found)} choose={setFigure} />
      {figure !== null && (
        <Dialog title="Figure" close={() => setFigure(null)}>
          <img src={figure.text} alt="Result of code" className="max-w-full bg-white" />
        </Dialog>
      )}
    </div>
  );
}

interface SourceChoiceProps {
  chosen: ReadonlySet<Source>;
  choose: (sources: ReadonlySet<Source>) => void;
}

function SourceChoice({ chosen, choose }: SourceChoiceProps) {
  const toggle = (source: Source) => {
    const next = new Set(chosen);
    if (!next.delete(source)) next.add(source);
    choose(next);
  };
  return (
    <fieldset className="flex flex-wrap gap-x-3 gap-y-1">
      <legend className="sr-only">Sources</legend>
      {(Object.keys(SOURCES) as Source[]).map((source) => (
        <label key={source} className="inline-flex items-center gap-1.5">
          <input type="checkbox" checked={chosen.has(source)} onChange={() => toggle(source)} />
          {SOURCES[source]}
        </label>
      ))}
    </fieldset>
  );
}

/** Follow the log into the store; begins anew when other sources are chosen. */
function useLogStream(
  store: LogStore,
  id: string,
  sources: ReadonlySet<Source>,
  hasEnded: boolean,
): Connection {
  const [connection, setConnection] = useState<Connection>("connecting");
  const isOver = useRef(hasEnded);
  useEffect(() => {
    isOver.current = hasEnded;
  }, [hasEnded]);

  useEffect(() => {
    const names = [...sources].map((source) => `source=${source}`).join("&");
    if (names === "") return store.clear();
    const read = () => {
      store.clear();
      return follow<LogEntry>({
        url: (after) =>
          `${root}v1/sandboxes/${id}/logs?${names}&${after === null ? `tail=${FIRST_RECORDS}` : `after=${after}`}`,
        headers: PAGE_HEADER,
        received: (records) => {
          const before = store.lines.length;
          store.add(records);
          describeStarts(store, id, before);
        },
        state: setConnection,
        missed: () => store.clear(),
        isOver: () => isOver.current,
        page: document,
      });
    };
    return read();
  }, [store, id, sources]);
  return connection;
}

/** Show what was run where a command, terminal or code begins; a record of an expired one stays without it. */
function describeStarts(store: LogStore, id: string, from: number): void {
  const starts = store.lines.slice(from).filter(({ kind, text }) => kind === "mark" && text === "started");
  for (const line of starts.slice(-MOST_DESCRIBED)) describeStart(store, id, line).catch(() => {});
}

async function describeStart(store: LogStore, id: string, line: Line): Promise<void> {
  const { commandId } = line;
  if (commandId === null) return;
  const path = { sandbox_id: id };
  if (line.source === "command") {
    const params = { path: { ...path, command_id: commandId } };
    const { cmd } = await unwrap(api.GET("/v1/sandboxes/{sandbox_id}/commands/{command_id}", { params }));
    store.describe(line, `$ ${cmd}`);
  } else if (line.source === "terminal") {
    const params = { path: { ...path, terminal_id: commandId } };
    const { cmd } = await unwrap(api.GET("/v1/sandboxes/{sandbox_id}/terminals/{terminal_id}", { params }));
    store.describe(line, `$ ${cmd ?? "a shell"}`);
  } else if (line.source === "code") {
    const params = { path: { ...path, execution_id: commandId } };
    const { code } = await unwrap(api.GET("/v1/sandboxes/{sandbox_id}/code/{execution_id}", { params }));
    store.describe(line, `>>> ${code}`);
  }
}
