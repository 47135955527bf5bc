import { root } from "../api/client.ts";

/** How to get the first sandbox. */
export function Empty() {
  const server = root.replace(/\/$/, "");
  return (
    <section className="mx-auto mt-8 w-[min(46rem,calc(100vw-2rem))]">
      <h2 className="font-semibold">No sandboxes</h2>
      <p className="mt-1 text-faint">
        New sandboxes appear here immediately. Create one with the button above, or:
      </p>
      <pre className="mt-3 overflow-auto rounded-md border border-line bg-card p-3 font-mono text-[0.92em]">
        {`curl -X POST -H "X-API-Key: $SANDBOX_SERVER_API_KEY" ${server}/v1/sandboxes

from sandbox_client import SandboxClient

with SandboxClient("${server}", api_key="…") as client:
    sandbox = client.create_sandbox()

sbx create`}
      </pre>
    </section>
  );
}
