import { useEffect, useState } from "react";
import { Button } from "../ui/button.tsx";

const REMEMBERED = "sandbox-server.theme";
const NEXT = { system: "dark", dark: "light", light: "system" } as const;
type Theme = keyof typeof NEXT;
const SIGNS: Record<Theme, string> = { system: "◐", dark: "☾", light: "☀" };

const remembered = (): Theme => {
  const found = localStorage.getItem(REMEMBERED);
  return found === "dark" || found === "light" ? found : "system";
};

/** Switch between the system's theme, dark and light. */
export function ThemeSwitch() {
  const [theme, setTheme] = useState(remembered);
  useEffect(() => {
    localStorage.setItem(REMEMBERED, theme);
    if (theme === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }, [theme]);
  return (
    <Button
      kind="quiet"
      className="px-2"
      aria-label={`Theme: ${theme}`}
      title={`Theme: ${theme}`}
      onClick={() => setTheme(NEXT[theme])}
    >
      <span aria-hidden="true">{SIGNS[theme]}</span>
    </Button>
  );
}
