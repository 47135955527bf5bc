import { get, post, idempotencyKey } from "./api.js";
import { h } from "./dom.js";
import { ago } from "./formatting.js";

const STATES_WITH_TERMINALS = ["running", "paused", "pausing", "resuming"];

function addressOf({ id, sandbox_id }) {
  return `#sandboxes/${sandbox_id}/terminals/${id}`;
}

/** Start a terminal and navigate to it; resumes a paused sandbox. */
export async function openTerminal(sandbox) {
  const terminal = await post(`/v1/sandboxes/${sandbox.id}/terminals`, {}, { "Idempotency-Key": idempotencyKey() });
  location.hash = addressOf(terminal);
}

/** List links to the open terminals of a sandbox. */
export async function terminalsOf(sandbox) {
  if (!STATES_WITH_TERMINALS.includes(sandbox.state)) return [];
  const { items } = await get(`/v1/sandboxes/${sandbox.id}/terminals?limit=20`);
  if (items.length === 0) return [];
  const links = items.map(terminal => h("a", { href: addressOf(terminal) }, `${terminal.cmd ?? "shell"}, ${ago(terminal.created_at)}`));
  return ["Open terminals: ", ...links.flatMap((link, index) => (index ? [" · ", link] : [link]))];
}
