import type { LogEntry } from "../api/client.ts";

/** The name of what a record is from: a command, a service, an agent; nothing for events. */
export function labelOf(record: LogEntry): string {
  if (!("command_id" in record) || !record.command_id) return "";
  const name = "name" in record ? record.name : null;
  return name ?? `${record.source} ${record.command_id.slice(-4)}`;
}

export function eventText(record: LogEntry): string {
  const reason = "reason" in record ? record.reason : null;
  return `${record.type.replace(/^sandbox\./, "").replaceAll("_", " ")}${reason ? `: ${reason}` : ""}`;
}

export function gapText(record: LogEntry): string {
  const { size, stream, reason, oldest } = record as {
    size?: number | null;
    stream?: string | null;
    reason?: string | null;
    oldest?: number;
  };
  if (oldest !== undefined) return "Older entries have been deleted.";
  const of = stream ? ` of ${stream}` : "";
  if (size === null || size === undefined)
    return `Output${of} may have been lost${reason ? `: ${reason}` : "."}`;
  return `${size} bytes${of} were lost.`;
}

export function outcomeText({
  state,
  exit_code,
  reason,
}: {
  state?: string | null;
  exit_code?: number | null;
  reason?: string | null;
}): string {
  const code = exit_code === null || exit_code === undefined ? "" : ` with ${exit_code}`;
  return `${state ?? "ended"}${code}${reason ? `: ${reason}` : ""}`;
}
