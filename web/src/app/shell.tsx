import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import { useEffect, useRef } from "react";
import { root } from "../api/client.ts";
import { Button } from "../ui/button.tsx";
import { Toasts } from "../ui/toasts.tsx";
import { ConnectionState } from "./connection.tsx";
import { LiveProvider } from "./live.tsx";
import { useSession } from "./session.tsx";
import { ThemeSwitch } from "./theme.tsx";

/** Header, content and notices of every page. */
export function Shell() {
  return (
    <LiveProvider>
      <Toasts>
        <div className="flex h-full flex-col">
          <button
            type="button"
            className="sr-only focus:not-sr-only focus:absolute focus:z-10 focus:bg-card focus:p-2"
            onClick={() => document.getElementById("main")?.focus()}
          >
            Skip to content
          </button>
          <Header />
          <Content />
        </div>
      </Toasts>
    </LiveProvider>
  );
}

function Header() {
  const { login, end } = useSession();
  return (
    <header className="flex flex-wrap items-center gap-x-4 gap-y-1 border-b border-line bg-card px-4 py-2">
      <Link to="/" className="font-semibold text-text no-underline">
        sandbox-server
      </Link>
      <nav aria-label="Pages" className="flex gap-1">
        <Link
          to="/"
          className="rounded-md px-2 py-0.5 text-faint [&.active]:bg-shade [&.active]:text-text"
          activeOptions={{ exact: true, includeSearch: false }}
        >
          Fleet
        </Link>
        <a href={`${root}docs`} className="rounded-md px-2 py-0.5 text-faint">
          API
        </a>
      </nav>
      <div className="ml-auto flex items-center gap-3">
        <ConnectionState />
        <span
          className="max-w-40 truncate text-faint max-sm:hidden"
          title={`Signed in with ${login.key_prefix}…`}
        >
          {login.tenant} · {login.key_name || login.key_prefix}
        </span>
        <ThemeSwitch />
        <Button kind="quiet" onClick={end}>
          Sign out
        </Button>
      </div>
    </header>
  );
}

/** After a navigation the focus is at the start of the content, for readers of screens and keyboards. */
function Content() {
  const path = useRouterState({ select: (state) => state.location.pathname });
  const main = useRef<HTMLElement>(null);
  const shown = useRef(path);
  useEffect(() => {
    if (shown.current === path) return;
    shown.current = path;
    main.current?.focus({ preventScroll: true });
  }, [path]);
  return (
    <main id="main" ref={main} tabIndex={-1} className="min-h-0 flex-1 overflow-auto outline-none">
      <Outlet />
    </main>
  );
}
