import { type ReactNode, useEffect, useRef } from "react";
import { useScrolled } from "./scrolled.ts";

const BEYOND = 6; // rows above and below what is seen

interface RowsProps {
  count: number;
  height: number;
  label: string;
  /** Scroll so that this row is seen; -1 for none. */
  cursor: number;
  row: (index: number) => ReactNode;
}

/** A list of rows of one height, of which only the visible ones exist. */
export function Rows({ count, height, label, cursor, row }: RowsProps) {
  const box = useRef<HTMLDivElement>(null);
  const seen = useScrolled(box);

  useEffect(() => {
    const element = box.current;
    if (element === null || cursor < 0) return;
    const top = cursor * height;
    if (top < element.scrollTop) element.scrollTop = top;
    else if (top + height > element.scrollTop + element.clientHeight)
      element.scrollTop = top + height - element.clientHeight;
  }, [cursor, height]);

  const first = Math.max(0, Math.floor(seen.top / height) - BEYOND);
  const last = Math.min(count, Math.ceil((seen.top + seen.size) / height) + BEYOND);
  const indexes = Array.from({ length: Math.max(0, last - first) }, (_, index) => first + index);
  return (
    <div ref={box} className="min-h-0 flex-1 overflow-x-hidden overflow-y-auto [scrollbar-gutter:stable]">
      <div role="rowgroup" aria-label={label} className="relative" style={{ height: count * height }}>
        {indexes.map((index) => (
          <div
            key={index}
            className="absolute inset-x-0 [contain:content]"
            style={{ top: index * height, height }}
          >
            {row(index)}
          </div>
        ))}
      </div>
    </div>
  );
}
