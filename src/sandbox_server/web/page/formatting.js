const MINUTE = 60, HOUR = 60 * MINUTE, DAY = 24 * HOUR;

let ahead = 0;

/** Learn how far the server's clock is ahead of the browser's, since all instants are told by it. */
export function setClock(date) {
  const told = Date.parse(date);
  if (!Number.isNaN(told) && Math.abs(told - now()) > 2000) ahead = told - Date.now();
}

function now() {
  return Date.now() + ahead;
}

/** Say how long something takes, in one or two units. */
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

/** Say when something will be, in words that go on being right for a moment. */
export function inTime(instant) {
  const seconds = secondsUntil(instant);
  return seconds <= 0 ? "any moment" : `in ${duration(seconds)}`;
}

export function clockTime(instant) {
  return new Date(instant).toLocaleTimeString([], { hour12: false });
}

export function fullTime(instant) {
  return new Date(instant).toLocaleString([], { dateStyle: "medium", timeStyle: "medium" });
}

/** Say what of its deadlines a sandbox comes to next, as sentences of a few words. */
export function deadlines(sandbox) {
  const said = [];
  if (sandbox.silent_since) said.push(`does not answer since ${age(sandbox.silent_since)}`);
  if (sandbox.queue) said.push(...place(sandbox.queue));
  if (sandbox.awake_until && secondsUntil(sandbox.awake_until) > 0) said.push(`kept awake for ${duration(secondsUntil(sandbox.awake_until))}`);
  if (sandbox.idle_pause_at) said.push(`pauses ${inTime(sandbox.idle_pause_at)} if nothing happens`);
  if (sandbox.expires_at) said.push(`${sandbox.on_timeout === "delete" ? "is deleted" : "is paused"} ${inTime(sandbox.expires_at)} at the latest`);
  if (sandbox.remaining_s !== null) said.push(`has ${duration(sandbox.remaining_s)} left`);
  if (sandbox.retain_until) said.push(`is deleted ${inTime(sandbox.retain_until)} unless resumed`);
  if (sandbox.ended_at) said.push(`ended ${ago(sandbox.ended_at)}`);
  return said;
}

function place({ position, reason, estimate_s }) {
  const turn = position === 1 ? "next in line" : `number ${position} in line`;
  const soon = estimate_s === null ? "" : `, in ${duration(estimate_s)} at the latest`;
  return [`${turn}${soon}`, reason];
}
