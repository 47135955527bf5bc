/** A piece of text with the classes of its colours and attributes. */
export interface Piece {
  text: string;
  look: string;
}

const SEQUENCE =
  /\x1b\[([0-9;:]*)m|\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]/g;
const NAMES = ["black", "red", "green", "yellow", "blue", "magenta", "cyan", "white"];
const ATTRIBUTES: Record<number, string> = {
  1: "font-bold",
  2: "opacity-70",
  3: "italic",
  4: "underline",
  9: "line-through",
};
const ENDS: Record<number, number[]> = { 22: [1, 2], 23: [3], 24: [4], 29: [9] };

interface Style {
  color: string;
  attributes: Set<number>;
}

function apply(style: Style, codes: number[]): void {
  for (let at = 0; at < codes.length; at += 1) {
    const code = codes[at] ?? 0;
    if (code === 0) {
      style.color = "";
      style.attributes.clear();
    } else if (code in ATTRIBUTES) style.attributes.add(code);
    else if (code in ENDS) for (const each of ENDS[code] ?? []) style.attributes.delete(each);
    else if (code === 39) style.color = "";
    else if (code >= 30 && code <= 37) style.color = `ansi-${NAMES[code - 30]}`;
    else if (code >= 90 && code <= 97) style.color = `ansi-${NAMES[code - 90]}`;
    else if (code === 38 || code === 48) at += codes[at + 1] === 5 ? 2 : 4; // colours beyond the sixteen
  }
}

const lookOf = ({ color, attributes }: Style): string =>
  [color, ...[...attributes].map((code) => ATTRIBUTES[code])].filter(Boolean).join(" ");

/** Remove the control sequences of terminals; a carriage return restarts the line, as in progress bars. */
export function plain(line: string): string {
  return latest(line).replace(SEQUENCE, "");
}

function latest(line: string): string {
  const shown = line.replace(/\r+$/, "");
  return shown.slice(shown.lastIndexOf("\r") + 1);
}

/** Split a line at its colours; everything else that terminals interpret is removed. */
export function pieces(line: string): Piece[] {
  const text = latest(line);
  const found: Piece[] = [];
  const style: Style = { color: "", attributes: new Set() };
  let start = 0;
  const add = (end: number) => {
    if (end > start) found.push({ text: text.slice(start, end), look: lookOf(style) });
  };
  for (const match of text.matchAll(SEQUENCE)) {
    add(match.index);
    start = match.index + match[0].length;
    if (match[1] !== undefined) apply(style, match[1].split(/[;:]/).map(Number));
  }
  add(text.length);
  return found;
}
