/** A time of day; its date and UTC are in the tip. */
export function Moment({ at }: { at: string }) {
  const date = new Date(at);
  const full = `${date.toLocaleString(undefined, { dateStyle: "medium", timeStyle: "long" })} · ${date.toISOString()}`;
  return (
    <time dateTime={at} title={full} className="text-faint tabular-nums">
      {date.toLocaleTimeString(undefined, { hour12: false })}
    </time>
  );
}
