import { plain } from "./ansi.ts";
import type { Line } from "./store.ts";

/** Find the indexes of lines that contain a text, whatever its case. */
export function findLines(lines: Line[], text: string): number[] {
  if (text === "") return [];
  const wanted = text.toLowerCase();
  const found: number[] = [];
  lines.forEach((line, index) => {
    if (line.kind !== "image" && plain(line.text).toLowerCase().includes(wanted)) found.push(index);
  });
  return found;
}

/** The found line after (or before) another, round at the end. */
export function nextFound(found: number[], current: number | null, isBackwards: boolean): number | null {
  const order = isBackwards ? found.toReversed() : found;
  const isBeyond = (index: number) => current === null || (isBackwards ? index < current : index > current);
  return order.find(isBeyond) ?? order[0] ?? null;
}

/** The lines as a file. */
export function asText(lines: Line[]): string {
  return lines
    .filter(({ kind }) => kind !== "image")
    .map(({ at, label, text }) => [at ?? "", label, plain(text)].filter(Boolean).join(" "))
    .join("\n");
}
