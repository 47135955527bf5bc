import { useState } from "react";

export interface Selection {
  ids: ReadonlySet<string>;
  /** Select or unselect a row; with Shift all rows between it and the row before. */
  toggle: (id: string, event: { shiftKey: boolean }) => void;
  replace: (ids: Iterable<string>) => void;
}

/** The rows between two rows, both included. */
export function between(shown: string[], one: string, other: string): string[] {
  const [start, end] = [shown.indexOf(one), shown.indexOf(other)].sort((a, b) => a - b);
  return start === undefined || end === undefined || start < 0 ? [] : shown.slice(start, end + 1);
}

export function useSelection(shown: string[]): Selection {
  const [ids, setIds] = useState<ReadonlySet<string>>(new Set());
  const [anchor, setAnchor] = useState<string | null>(null);
  const present = new Set(shown);
  return {
    ids: new Set([...ids].filter((id) => present.has(id))),
    toggle: (id, { shiftKey }) => {
      const changed = shiftKey && anchor !== null ? between(shown, anchor, id) : [id];
      const isAdded = !ids.has(id);
      const next = new Set(ids);
      for (const each of changed) {
        if (isAdded) next.add(each);
        else next.delete(each);
      }
      setIds(next);
      setAnchor(id);
    },
    replace: (wanted) => setIds(new Set(wanted)),
  };
}
