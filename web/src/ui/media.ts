import { useSyncExternalStore } from "react";

const NARROW = matchMedia("(max-width: 640px)");

function subscribe(changed: () => void): () => void {
  NARROW.addEventListener("change", changed);
  return () => NARROW.removeEventListener("change", changed);
}

/** Whether the window is as narrow as a phone. */
export const useIsNarrow = (): boolean => useSyncExternalStore(subscribe, () => NARROW.matches);
