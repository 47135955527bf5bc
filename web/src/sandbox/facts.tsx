import type { Sandbox } from "../api/client.ts";
import { ago, duration } from "../live/durations.ts";

const endsBy = ({ on_timeout }: Sandbox): string => (on_timeout === "delete" ? "deleted" : "paused");

function factsOf(sandbox: Sandbox): [name: string, value: string][] {
  const { resources, metadata, repository } = sandbox;
  const size = [
    resources.cpu_count && `${resources.cpu_count} CPU`,
    resources.memory_mb && `${resources.memory_mb} MiB`,
  ];
  const all: [string, string | null | undefined | false][] = [
    ["Template", sandbox.template],
    ["Capabilities", sandbox.capabilities?.join(", ")],
    ["Backend", sandbox.backend],
    ["Resources", size.filter(Boolean).join(", ")],
    ["User", sandbox.user_id],
    ["Session", sandbox.session_id],
    ["Agent", sandbox.agent_type],
    [
      "Repository",
      repository &&
        `${repository.name} ${repository.state}${repository.reason ? `: ${repository.reason}` : ""}`,
    ],
    [
      "Metadata",
      Object.entries(metadata)
        .map(([name, value]) => `${name} = ${value}`)
        .join("\n"),
    ],
    ["Created", new Date(sandbox.created_at).toLocaleString()],
    ["Last activity", sandbox.last_activity_at && ago(sandbox.last_activity_at)],
    ["Timeout", `${endsBy(sandbox)} after ${duration(sandbox.timeout_s)}`],
    [
      "Idle timeout",
      sandbox.idle_timeout_s === null ? "off" : `paused after ${duration(sandbox.idle_timeout_s)}`,
    ],
    ["Auto-resume", sandbox.auto_resume ? "on" : "off"],
    ["Priority", sandbox.priority !== 0 && String(sandbox.priority)],
  ];
  return all.filter((fact): fact is [string, string] => Boolean(fact[1]));
}

export function Facts({ sandbox }: { sandbox: Sandbox }) {
  return (
    <section aria-labelledby="details" className="min-w-0 rounded-lg border border-line bg-card p-4">
      <h2 id="details" className="mb-2 font-semibold">
        Details
      </h2>
      <dl className="grid grid-cols-[8rem_1fr] gap-x-4 gap-y-1">
        {factsOf(sandbox).map(([name, value]) => (
          <div key={name} className="contents">
            <dt className="text-faint">{name}</dt>
            <dd className="whitespace-pre-line [overflow-wrap:anywhere]">{value}</dd>
          </div>
        ))}
      </dl>
    </section>
  );
}
