import { getRouteApi, Link } from "@tanstack/react-router";
import { useEffect } from "react";
import { Problem } from "../api/problem.ts";
import { deadlines } from "../live/deadlines.ts";
import { StateBadge } from "../ui/state-badge.tsx";
import { useTick } from "../ui/tick.ts";
import { ActionBar } from "./action-bar.tsx";
import { Facts } from "./facts.tsx";
import { useSandbox } from "./queries.ts";
import { Timeline } from "./timeline.tsx";

const TICK_MS = 5000;
const route = getRouteApi("/sandboxes/$id");

/** One sandbox: its state, what happens next, its details and its timeline. */
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
  const next = [sandbox.state_reason, sandbox.template_note, ...deadlines(sandbox)]
    .filter(Boolean)
    .join(" · ");
  return (
    <div className="mx-auto max-w-6xl p-4">
      <p>
        <Link to="/">← Fleet</Link>
      </p>
      <div className="mt-1 flex flex-wrap items-center gap-x-4 gap-y-2">
        <h1 className="font-mono text-lg font-semibold break-all">{id}</h1>
        <StateBadge state={sandbox.state} />
        <ActionBar sandbox={sandbox} />
      </div>
      <p className="mt-1 text-faint" role="status">
        {next}
      </p>
      <div className="mt-4 grid gap-4 lg:grid-cols-2">
        <Facts sandbox={sandbox} />
        <Timeline id={id} />
      </div>
    </div>
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
