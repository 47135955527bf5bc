import { now } from "./clock.ts";

const MINUTE = 60;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;

/** Format a duration in one or two units. */
export function duration(seconds: number): string {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < MINUTE) return `${whole} s`;
  if (whole < HOUR) return `${Math.round(whole / MINUTE)} min`;
  if (whole < DAY) return inTwo(whole, [HOUR, "h"], [MINUTE, "min"]);
  return inTwo(whole, [DAY, "d"], [HOUR, "h"]);
}

function inTwo(
  seconds: number,
  [large, largeName]: [number, string],
  [small, smallName]: [number, string],
): string {
  const inSmall = Math.round(seconds / small);
  const most = large / small;
  const rest = inSmall % most;
  return `${Math.floor(inSmall / most)} ${largeName}${rest ? ` ${rest} ${smallName}` : ""}`;
}

export const secondsUntil = (instant: string): number => (Date.parse(instant) - now()) / 1000;

export const age = (instant: string): string => duration(-secondsUntil(instant));

export function ago(instant: string): string {
  const seconds = -secondsUntil(instant);
  return seconds < 1 ? "just now" : `${duration(seconds)} ago`;
}

export function inTime(instant: string): string {
  const seconds = secondsUntil(instant);
  return seconds <= 0 ? "now" : `in ${duration(seconds)}`;
}
