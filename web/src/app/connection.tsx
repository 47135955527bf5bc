import { duration } from "../live/durations.ts";
import { useTick } from "../ui/tick.ts";
import { useLive } from "./live.tsx";

const LOOKS = {
  connecting: ["◐", "text-wait", "Connecting"],
  live: ["●", "text-good", "Live"],
  lost: ["○", "text-bad", "Reconnecting"],
  over: ["○", "text-faint", "Ended"],
} as const;

/** Whether what is on screen is current, and since when it is not. */
export function ConnectionState() {
  const { connection, lostAt } = useLive();
  useTick(1000, connection === "lost");
  const [sign, color, word] = LOOKS[connection];
  const since =
    connection === "lost" && lostAt !== null
      ? ` · data is ${duration((Date.now() - lostAt) / 1000)} old`
      : "";
  return (
    <span
      className={`inline-flex items-center gap-1.5 whitespace-nowrap ${color}`}
      role="status"
      data-connection={connection}
    >
      <span aria-hidden="true">{sign}</span>
      {word}
      {since}
    </span>
  );
}
