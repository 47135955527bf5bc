const MINUTE = 60, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

let ahead = 0;

/** Set the offset between the server's clock, which all timestamps are from, and the browser's. */
export function setClock(date) {
  const serverTime = Date.parse(date);
  if (!Number.isNaN(serverTime) && Math.abs(serverTime - now()) > 2000) ahead = serverTime - Date.now();
}

function now() {
  return Date.now() + ahead;
}

/** Format a duration in one or two units. */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds));
  if (whole < MINUTE) return `${whole} s`;
  if (whole < HOUR) return `${Math.round(whole / MINUTE)} min`;
  if (whole < DAY) return inTwo(whole, HOUR, "h", MINUTE, "min");
  return inTwo(whole, DAY, "d", HOUR, "h");
}

function inTwo(seconds, large, largeName, small, smallName) {
  const inSmall = Math.round(seconds / small);
  const most = large / small;
  const rest = inSmall % most;
  return `${Math.floor(inSmall / most)} ${largeName}${rest ? ` ${rest} ${smallName}` : ""}`;
}

export function secondsUntil(instant) {
  return (Date.parse(instant) - now()) / 1000;
}

export function age(instant) {
  return duration(-secondsUntil(instant));
}

export function ago(instant) {
  const seconds = -secondsUntil(instant);
  return seconds < 1 ? "just now" : `${duration(seconds)} ago`;
}

/** Format the time until an instant. */
export function inTime(instant) {
  const seconds = secondsUntil(instant);
  return seconds <= 0 ? "now" : `in ${duration(seconds)}`;
}

export function clockTime(instant) {
  return new Date(instant).toLocaleTimeString([], { hour12: false });
}

export function fullTime(instant) {
  return new Date(instant).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
}

/** Describe a sandbox's deadlines and queue position in short phrases. */
export function deadlines(sandbox) {
  const phrases = [];
  if (sandbox.silent_since) phrases.push(`unresponsive for ${age(sandbox.silent_since)}`);
  if (sandbox.queue) phrases.push(...queuePosition(sandbox.queue));
  if (sandbox.awake_until && secondsUntil(sandbox.awake_until) > 0) phrases.push(`kept awake for ${duration(secondsUntil(sandbox.awake_until))}`);
  if (sandbox.idle_pause_at) phrases.push(`pauses ${inTime(sandbox.idle_pause_at)} if idle`);
  if (sandbox.expires_at) phrases.push(`${sandbox.on_timeout === "delete" ? "deleted" : "paused"} ${inTime(sandbox.expires_at)} at the latest`);
  if (sandbox.remaining_s !== null) phrases.push(`${duration(sandbox.remaining_s)} of its timeout left`);
  if (sandbox.retain_until) phrases.push(`deleted ${inTime(sandbox.retain_until)} unless resumed`);
  if (sandbox.ended_at) phrases.push(`ended ${ago(sandbox.ended_at)}`);
  return phrases;
}

function queuePosition({ position, reason, estimate_s }) {
  const place = position === 1 ? "next in queue" : `position ${position} in queue`;
  const estimate = estimate_s === null ? "" : `, within ${duration(estimate_s)}`;
  return [`${place}${estimate}`, reason];
}
