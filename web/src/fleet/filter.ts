import type { Sandbox } from "../api/client.ts";

const ENDED = new Set(["stopped", "failed"]);

interface Term {
  field: string | null;
  text: string;
  isNegated: boolean;
}

/** Split a query at spaces, except inside of double quotes. */
function terms(query: string): Term[] {
  const words = query.match(/(?:[^\s"]|"[^"]*"?)+/g) ?? [];
  return words.map((word) => {
    const isNegated = word.length > 1 && word.startsWith("-");
    const [, field, text] = /^([a-z_.]+):(.*)$/i.exec(isNegated ? word.slice(1) : word) ?? [
      null,
      null,
      isNegated ? word.slice(1) : word,
    ];
    return {
      field: field?.toLowerCase() ?? null,
      text: (text ?? "").replaceAll('"', "").toLowerCase(),
      isNegated,
    };
  });
}

const FIELDS: Record<string, (sandbox: Sandbox) => string | null> = {
  id: (sandbox) => sandbox.id,
  state: (sandbox) => sandbox.state,
  template: (sandbox) => sandbox.template,
  backend: (sandbox) => sandbox.backend,
  user: (sandbox) => sandbox.user_id,
  session: (sandbox) => sandbox.session_id,
  agent: (sandbox) => sandbox.agent_type,
};

export const FIELD_NAMES = Object.keys(FIELDS);

function fieldOf(sandbox: Sandbox, field: string): string | null {
  const known = FIELDS[field];
  return known ? known(sandbox) : (sandbox.metadata[field] ?? null);
}

function textsOf(sandbox: Sandbox): string {
  const labels = Object.entries(sandbox.metadata).map(([name, value]) => `${name}=${value}`);
  const { id, state, template, backend, user_id, session_id, agent_type } = sandbox;
  return [id, state, template, backend, user_id, session_id, agent_type, ...labels].join(" ").toLowerCase();
}

function fits(sandbox: Sandbox, { field, text, isNegated }: Term): boolean {
  const isFound =
    field === null
      ? textsOf(sandbox).includes(text)
      : text.split(",").some((choice) => fieldOf(sandbox, field)?.toLowerCase().includes(choice) ?? false);
  return isFound !== isNegated;
}

/** Make a test of sandboxes from a query such as `state:running,paused -template:base some text`. */
export function matcher(query: string): (sandbox: Sandbox) => boolean {
  const wanted = terms(query);
  const namesStates = wanted.some(({ field }) => field === "state");
  return (sandbox) =>
    (namesStates || !ENDED.has(sandbox.state)) && wanted.every((term) => fits(sandbox, term));
}

/** Return the query with this state added as its only state, or without it if it was that. */
export function toggleState(query: string, state: string): string {
  const word = `state:${state}`;
  const rest = query.split(/\s+/).filter((each) => each !== "" && !each.startsWith("state:"));
  const had = query.split(/\s+/).includes(word);
  return (had ? rest : [...rest, word]).join(" ");
}
