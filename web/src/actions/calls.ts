import type { Call } from "../api/copy-as.ts";

export type Action = "pause" | "resume" | "delete";

const pathOf = (id: string): string => `/v1/sandboxes/${id}`;

/** The call that carries out an action on a sandbox. */
export function callOf(action: Action, id: string): Call {
  const python = `client.get_sandbox("${id}").${action}()`;
  if (action === "delete") return { method: "DELETE", path: pathOf(id), python, sbx: `sbx rm ${id}` };
  const path = action === "resume" ? `${pathOf(id)}/resume?wait=0` : `${pathOf(id)}/${action}`;
  return { method: "POST", path, python, sbx: `sbx ${action} ${id}` };
}
