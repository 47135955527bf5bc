import { Tabs } from "@base-ui/react/tabs";
import { getRouteApi, Link, useNavigate } from "@tanstack/react-router";
import { useEffect } from "react";
import type { Sandbox } from "../api/client.ts";
import { Problem } from "../api/problem.ts";
import { deadlines } from "../live/deadlines.ts";
import { StateBadge } from "../ui/state-badge.tsx";
import { useTick } from "../ui/tick.ts";
import { ActionBar } from "./action-bar.tsx";
import { Facts } from "./facts.tsx";
import { LogTab } from "./log-tab.tsx";
import { useSandbox } from "./queries.ts";
import { TerminalsTab } from "./terminals-tab.tsx";
import { Timeline } from "./timeline.tsx";

const TICK_MS = 5000;
const route = getRouteApi("/sandboxes/$id");

/** One sandbox: its state, what happens next, and tabs for the rest. */
export function SandboxPage() {
  const { id } = route.useParams();
  const { data: sandbox, error } = useSandbox(id);
  useTick(TICK_MS);

  useEffect(() => {
    document.title = `${id} · sandbox-server`;
    return () => {
      document.title = "sandbox-server";
    };
  }, [id]);

  if (error !== null) return <Failure problem={error} />;
  if (sandbox === undefined) return null;
  return (
    <div className="mx-auto flex h-full max-w-7xl flex-col p-4">
      <p>
        <Link to="/">← Fleet</Link>
      </p>
      <div className="mt-1 flex flex-wrap items-center gap-x-4 gap-y-2">
        <h1 className="font-mono text-lg font-semibold break-all">{id}</h1>
        <StateBadge state={sandbox.state} />
        <ActionBar sandbox={sandbox} />
      </div>
      <p className="mt-1 text-faint" role="status">
        {[...deadlines(sandbox), sandbox.state_reason, sandbox.template_note].filter(Boolean).join(" · ")}
      </p>
      <SandboxTabs sandbox={sandbox} />
    </div>
  );
}

const TABS = ["overview", "log", "terminals"] as const;
type TabName = (typeof TABS)[number];
const LABELS: Record<TabName, string> = { overview: "Overview", log: "Log", terminals: "Terminals" };
const HAVE_TERMINALS = new Set(["running", "paused", "pausing", "resuming"]);
const isTab = (name: string | undefined): name is TabName => TABS.some((tab) => tab === name);

function SandboxTabs({ sandbox }: { sandbox: Sandbox }) {
  const { tab } = route.useSearch();
  const navigate = useNavigate();
  const shown = TABS.filter((name) => name !== "terminals" || HAVE_TERMINALS.has(sandbox.state));
  const current = isTab(tab) && shown.includes(tab) ? tab : "overview";
  const choose = (name: string) =>
    navigate({
      to: "/sandboxes/$id",
      params: { id: sandbox.id },
      search: name === "overview" ? {} : { tab: name },
      replace: true,
    });
  return (
    <Tabs.Root value={current} onValueChange={choose} className="mt-3 flex min-h-0 flex-1 flex-col">
      <Tabs.List className="flex gap-1 border-b border-line">
        {shown.map((name) => (
          <Tabs.Tab
            key={name}
            value={name}
            className="border-b-2 border-transparent px-3 py-1.5 text-faint data-active:border-accent data-active:text-text"
          >
            {LABELS[name]}
          </Tabs.Tab>
        ))}
      </Tabs.List>
      <Tabs.Panel value="overview" className="grid content-start gap-4 pt-4 lg:grid-cols-2">
        <Facts sandbox={sandbox} />
        <Timeline id={sandbox.id} />
      </Tabs.Panel>
      <Tabs.Panel value="log" className="flex min-h-72 flex-1 flex-col pt-3">
        <LogTab id={sandbox.id} state={sandbox.state} />
      </Tabs.Panel>
      <Tabs.Panel value="terminals" className="flex min-h-72 flex-1 flex-col pt-3">
        <TerminalsTab sandbox={sandbox} />
      </Tabs.Panel>
    </Tabs.Root>
  );
}

function Failure({ problem }: { problem: Error }) {
  const isGone = problem instanceof Problem && problem.status === 404;
  return (
    <div className="p-8 text-center">
      <h1 className="text-lg font-semibold">
        {isGone ? "There is no such sandbox" : "The sandbox cannot be read"}
      </h1>
      <p className="mt-1 text-faint">{problem.message}</p>
      <p className="mt-2">
        <Link to="/">Go to the sandboxes</Link>
      </p>
    </div>
  );
}
