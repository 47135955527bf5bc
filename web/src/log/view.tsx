import { type RefObject, useEffect, useLayoutEffect, useRef, useSyncExternalStore } from "react";
import { Moment } from "../ui/moment.tsx";
import { useScrolled } from "../ui/scrolled.ts";
import { pieces } from "./ansi.ts";
import type { Line, LogStore } from "./store.ts";

export const LINE_PX = 20;
const BEYOND = 10;
const NEARLY_AT_END_PX = 24;

export interface Reading {
  isFollowing: boolean;
  setFollowing: (isFollowing: boolean) => void;
}

interface LogLinesProps extends Reading {
  store: LogStore;
  /** Index of the line to scroll to; null for none. */
  target: number | null;
  found: ReadonlySet<number>;
  choose: (line: Line) => void;
}

/** The lines of a log, of which only the visible ones exist; follows the end until the reader scrolls up. */
export function LogLines({ store, target, found, choose, isFollowing, setFollowing }: LogLinesProps) {
  const box = useRef<HTMLDivElement>(null);
  const seen = useScrolled(box);
  useSyncExternalStore(store.subscribe, () => store.version);
  const { lines } = store;

  // After every change: the end moves with each line.
  useLayoutEffect(() => {
    if (isFollowing && box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  });

  useKeptPlace(box, store.dropped, isFollowing);

  useEffect(() => {
    if (target !== null && box.current !== null)
      box.current.scrollTop = target * LINE_PX - box.current.clientHeight / 2;
  }, [target]);

  const first = Math.max(0, Math.floor(seen.top / LINE_PX) - BEYOND);
  const last = Math.min(lines.length, Math.ceil((seen.top + seen.size) / LINE_PX) + BEYOND);
  return (
    <div
      ref={box}
      role="log"
      aria-label="Log"
      aria-live="off"
      // biome-ignore lint/a11y/noNoninteractiveTabindex: a region that scrolls is reached by keyboard
      tabIndex={0}
      className="min-h-0 flex-1 overflow-auto rounded-lg border border-line bg-card font-mono text-[12.5px] leading-5"
      onWheel={(event) => event.deltaY < 0 && setFollowing(false)}
      onKeyDown={({ key }) => ["ArrowUp", "PageUp", "Home"].includes(key) && setFollowing(false)}
      onScroll={({ currentTarget: { scrollHeight, scrollTop, clientHeight } }) => {
        if (scrollHeight - scrollTop - clientHeight < NEARLY_AT_END_PX) setFollowing(true);
      }}
    >
      <div className="relative min-w-max" style={{ height: lines.length * LINE_PX }}>
        {lines.slice(first, last).map((line, index) => (
          <div
            key={first + index}
            className={`absolute inset-x-0 ${found.has(first + index) ? "bg-[color-mix(in_srgb,var(--wait)_10%,transparent)]" : ""}`}
            style={{ top: (first + index) * LINE_PX, height: LINE_PX }}
          >
            <LogLine line={line} choose={choose} />
          </div>
        ))}
      </div>
    </div>
  );
}

/** Keep the same lines in sight when older ones are dropped. */
function useKeptPlace(box: RefObject<HTMLDivElement | null>, dropped: number, isFollowing: boolean): void {
  const before = useRef(dropped);
  useLayoutEffect(() => {
    const gone = dropped - before.current;
    before.current = dropped;
    if (gone > 0 && !isFollowing && box.current !== null) box.current.scrollTop -= gone * LINE_PX;
  }, [box, dropped, isFollowing]);
}

const LOOKS: Record<Line["kind"], string> = {
  stdout: "",
  stderr: "shadow-[inset_2px_0_0_var(--bad)]",
  mark: "text-faint",
  gap: "text-wait",
  image: "",
};

function LogLine({ line, choose }: { line: Line; choose: (line: Line) => void }) {
  return (
    <div
      className={`flex h-full gap-3 px-3 whitespace-pre ${LOOKS[line.kind]}`}
      data-seq={line.seq}
      data-kind={line.kind}
    >
      <span className="w-16 shrink-0">{line.at !== null && <Moment at={line.at} />}</span>
      <span className="w-28 shrink-0 truncate text-faint" title={line.label}>
        {line.label}
      </span>
      {line.kind === "image" ? (
        <button type="button" className="text-accent underline" onClick={() => choose(line)}>
          Show figure
        </button>
      ) : (
        <span>
          {pieces(line.text).map(({ text, look }, index) => (
            <span key={index} className={look}>
              {text}
            </span>
          ))}
          {line.isCut && <span className="text-faint"> … cut</span>}
        </span>
      )}
    </div>
  );
}
