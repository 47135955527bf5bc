import type { LogEntry, Output } from "../api/client.ts";
import { eventText, gapText, labelOf, outcomeText } from "./words.ts";

const MOST_LINES = 200_000;
const DROPPED_AT_ONCE = 10_000;
const LONGEST_LINE = 4000;
const FRAME_MS = 16;

export type LineKind = "stdout" | "stderr" | "mark" | "gap" | "image";

export interface Line {
  /** Number of the record, which is the address of the line. */
  seq: number | null;
  at: string | null;
  source: string;
  label: string;
  commandId: string | null;
  kind: LineKind;
  text: string;
  /** Where the text was cut off. */
  isCut: boolean;
}

/** The lines of a log, outside of React; tells once a frame that there are more. */
export class LogStore {
  lines: Line[] = [];
  /** Lines that were dropped because there are too many. */
  dropped = 0;
  version = 0;
  readonly #open = new Map<string, Line>();
  readonly #listeners = new Set<() => void>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  };

  clear(): void {
    this.lines = [];
    this.dropped = 0;
    this.#open.clear();
    this.#tellSoon();
  }

  add(records: LogEntry[]): void {
    for (const record of records) this.#write(record);
    if (this.lines.length > MOST_LINES) {
      const excess = this.lines.length - MOST_LINES + DROPPED_AT_ONCE;
      this.lines.splice(0, excess);
      this.dropped += excess;
    }
    this.#tellSoon();
  }

  /** Set the text of the line that began a command, which its record does not have. */
  describe(line: Line, text: string): void {
    const [first = "", ...rest] = text.split("\n");
    line.text = cut(rest.length > 0 ? `${first} …` : first);
    this.#tellSoon();
  }

  #tellSoon(): void {
    this.#timer ??= setTimeout(() => {
      this.#timer = undefined;
      this.version += 1;
      for (const listener of this.#listeners) listener();
    }, FRAME_MS);
  }

  #append(record: LogEntry, kind: LineKind, text: string): Line {
    const line: Line = {
      seq: "seq" in record ? (record.seq ?? null) : null,
      at: "at" in record ? (record.at ?? null) : null,
      source: "source" in record ? (record.source ?? "") : "",
      label: labelOf(record),
      commandId: "command_id" in record ? (record.command_id ?? null) : null,
      kind,
      text: cut(text),
      isCut: text.length > LONGEST_LINE,
    };
    this.lines.push(line);
    return line;
  }

  #write(record: LogEntry): void {
    if (record.type === "gap") {
      this.#append(record, "gap", gapText(record));
      return;
    }
    if (!("command_id" in record)) {
      this.#append(record, "mark", eventText(record));
      return;
    }
    if (record.type === "stdout" || record.type === "stderr") this.#writeOutput(record, record.type);
    else if (record.type === "started") this.#append(record, "mark", "started");
    else if (record.type === "exit") this.#append(record, "mark", outcomeText(record));
    else if (record.type === "error")
      this.#writeLines(
        record,
        "stderr",
        record.error?.traceback || `${record.error?.name}: ${record.error?.value}`,
      );
    else this.#writeResult(record);
  }

  /** Write output; a record may begin and end in the middle of a line. */
  #writeOutput(record: Output, kind: "stdout" | "stderr"): void {
    const stream = `${record.command_id} ${kind}`;
    const [first = "", ...rest] = textOf(record).replaceAll("\r\n", "\n").split("\n");
    const open = this.#open.get(stream);
    if (open === undefined) this.#open.set(stream, this.#append(record, kind, first));
    else this.#extend(open, first);
    for (const text of rest) this.#open.set(stream, this.#append(record, kind, text));
    const last = this.#open.get(stream);
    if (last?.text === "" && rest.length > 0) {
      this.lines.pop(); // the output ended with a line feed: the next line is not there yet
      this.#open.delete(stream);
    }
  }

  #extend(line: Line, text: string): void {
    const whole = line.text + text;
    line.isCut ||= whole.length > LONGEST_LINE;
    line.text = cut(whole);
  }

  #writeLines(record: LogEntry, kind: LineKind, text: string): void {
    for (const line of text.trimEnd().split("\n")) this.#append(record, kind, line);
  }

  #writeResult(record: Output): void {
    const data: Record<string, unknown> = record.data ?? {};
    for (const type of ["png", "jpeg"]) {
      const image = data[type];
      if (typeof image === "string") {
        this.lines.push({
          ...this.#blank(record),
          kind: "image",
          text: `data:image/${type};base64,${image.trim()}`,
        });
        return;
      }
    }
    const text =
      typeof data.text === "string" ? data.text : `[${Object.keys(record.sizes ?? {}).join(", ")}]`;
    this.#writeLines(record, "stdout", text);
  }

  #blank(record: Output): Line {
    const { seq, at, source, command_id } = record;
    return {
      seq,
      at,
      source,
      label: labelOf(record),
      commandId: command_id,
      kind: "stdout",
      text: "",
      isCut: false,
    };
  }
}

const cut = (text: string): string => text.slice(0, LONGEST_LINE);

function textOf({ text, base64 }: Output): string {
  if (text !== null && text !== undefined) return text;
  return new TextDecoder().decode(Uint8Array.from(atob(base64 ?? ""), (letter) => letter.charCodeAt(0)));
}
