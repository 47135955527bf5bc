import { get, post, requestName } from "./api.js";
import { h } from "./dom.js";
import { ago } from "./formatting.js";

const LIVING = ["running", "paused", "pausing", "resuming"];

function addressOf({ id, sandbox_id }) {
  return `#sandboxes/${sandbox_id}/terminals/${id}`;
}

/** Start a terminal and go there; a paused sandbox wakes for it. */
export async function openTerminal(sandbox) {
  const terminal = await post(`/v1/sandboxes/${sandbox.id}/terminals`, {}, { "Idempotency-Key": requestName() });
  location.hash = addressOf(terminal);
}

/** Lead to the terminals that are open in a sandbox. */
export async function terminalsOf(sandbox) {
  if (!LIVING.includes(sandbox.state)) return [];
  const { items } = await get(`/v1/sandboxes/${sandbox.id}/terminals?limit=20`);
  if (items.length === 0) return [];
  const links = items.map(terminal => h("a", { href: addressOf(terminal) }, `${terminal.cmd ?? "shell"}, ${ago(terminal.created_at)}`));
  return ["Open terminals: ", ...links.flatMap((link, index) => (index ? [" · ", link] : [link]))];
}
