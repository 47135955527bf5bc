import { type RefObject, useLayoutEffect, useState } from "react";

/** Follow how far an element is scrolled, and its height. */
export function useScrolled(box: RefObject<HTMLElement | null>): { top: number; size: number } {
  const [seen, setSeen] = useState({ top: 0, size: 0 });
  useLayoutEffect(() => {
    const element = box.current;
    if (element === null) return;
    const measure = () => setSeen({ top: element.scrollTop, size: element.clientHeight });
    const observer = new ResizeObserver(measure);
    observer.observe(element);
    element.addEventListener("scroll", measure, { passive: true });
    return () => {
      observer.disconnect();
      element.removeEventListener("scroll", measure);
    };
  }, [box]);
  return seen;
}
