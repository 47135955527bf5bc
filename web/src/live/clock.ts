const TOLERATED_MS = 2000;

let aheadMs = 0;

/** Adjust to the server's clock, which all instants are from. */
export function setServerTime(date: string | null): void {
  const there = Date.parse(date ?? "");
  if (!Number.isNaN(there) && Math.abs(there - now()) > TOLERATED_MS) aheadMs = there - Date.now();
}

/** Return the server's time in milliseconds. */
export function now(): number {
  return Date.now() + aheadMs;
}
