import type { SandboxState } from "../api/client.ts";

const LOOKS: Record<SandboxState, [sign: string, color: string]> = {
  queued: ["◌", "text-wait"],
  starting: ["◔", "text-wait"],
  running: ["●", "text-good"],
  pausing: ["◑", "text-wait"],
  paused: ["◐", "text-rest"],
  resuming: ["◕", "text-wait"],
  stopping: ["◔", "text-wait"],
  stopped: ["○", "text-faint"],
  failed: ["✕", "text-bad"],
};

/** A state by icon, word and colour. */
export function StateBadge({ state }: { state: SandboxState }) {
  const [sign, color] = LOOKS[state];
  return (
    <span className={`inline-flex items-center gap-1.5 font-medium whitespace-nowrap ${color}`}>
      <span aria-hidden="true">{sign}</span>
      {state}
    </span>
  );
}
