import type { Sandbox } from "../api/client.ts";
import { age, ago, duration, inTime, secondsUntil } from "./durations.ts";

/** Describe a sandbox's deadlines and its queue position in short phrases. */
export function deadlines(sandbox: Sandbox): string[] {
  const { queue, on_timeout } = sandbox;
  const phrases: string[] = [];
  if (sandbox.silent_since) phrases.push(`unresponsive for ${age(sandbox.silent_since)}`);
  if (queue) phrases.push(queuePosition(queue), queue.reason);
  if (sandbox.awake_until && secondsUntil(sandbox.awake_until) > 0)
    phrases.push(`kept awake for ${duration(secondsUntil(sandbox.awake_until))}`);
  if (sandbox.idle_pause_at) phrases.push(`pauses ${inTime(sandbox.idle_pause_at)} if idle`);
  if (sandbox.expires_at)
    phrases.push(
      `${on_timeout === "delete" ? "deleted" : "paused"} ${inTime(sandbox.expires_at)} at the latest`,
    );
  if (sandbox.remaining_s !== null) phrases.push(`${duration(sandbox.remaining_s)} of its timeout left`);
  if (sandbox.retain_until) phrases.push(`deleted ${inTime(sandbox.retain_until)} unless resumed`);
  if (sandbox.ended_at) phrases.push(`ended ${ago(sandbox.ended_at)}`);
  return phrases;
}

function queuePosition({ position, estimate_s }: NonNullable<Sandbox["queue"]>): string {
  const place = position === 1 ? "next in queue" : `position ${position} in queue`;
  return estimate_s === null ? place : `${place}, within ${duration(estimate_s)}`;
}
