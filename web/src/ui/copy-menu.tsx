import { Menu } from "@base-ui/react/menu";
import { type Call, copyAs, type Language } from "../api/copy-as.ts";
import { Button } from "./button.tsx";
import { copyText } from "./clipboard.ts";

const LANGUAGES: Language[] = ["curl", "Python", "sbx"];

/** Copy calls of the API as a person would repeat them elsewhere. */
export function CopyMenu({ calls, label = "Copy as" }: { calls: Call[]; label?: string }) {
  return (
    <Menu.Root>
      <Menu.Trigger render={<Button kind="quiet" />}>
        {label} <span aria-hidden="true">▾</span>
      </Menu.Trigger>
      <Menu.Portal>
        <Menu.Positioner sideOffset={4}>
          <Menu.Popup className="z-10 min-w-28 rounded-md border border-line bg-card p-1 shadow-lg">
            {LANGUAGES.map((language) => {
              const text = copyAs(calls, language);
              return (
                <Menu.Item
                  key={language}
                  disabled={text === null}
                  className="cursor-pointer rounded px-3 py-1 data-disabled:opacity-50 data-highlighted:bg-shade"
                  onClick={() => text !== null && copyText(text)}
                >
                  {language}
                </Menu.Item>
              );
            })}
          </Menu.Popup>
        </Menu.Positioner>
      </Menu.Portal>
    </Menu.Root>
  );
}
