import { useEffect, useState } from "react";

/** Render again periodically, for texts that depend on the time. */
export function useTick(everyMs: number, isOn = true): void {
  const [, setCount] = useState(0);
  useEffect(() => {
    if (!isOn) return;
    const timer = setInterval(() => setCount((count) => count + 1), everyMs);
    return () => clearInterval(timer);
  }, [everyMs, isOn]);
}
