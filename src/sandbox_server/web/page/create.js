import { pages, post, idempotencyKey } from "./api.js";
import { ask } from "./dialog.js";
import { h } from "./dom.js";
import { attempt, notify } from "./notices.js";

const HOUR = 3600;

/** Open the dialog for a new sandbox and create it; the list shows it through its events. */
export async function openCreateDialog() {
  const entered = await ask({ title: "New sandbox", act: "Create", fields: [
    field("Template", h("select", { name: "template" }, h("option", { value: "" }, "Default (agent)"), ...(await templates()))),
    field("Timeout", h("select", { name: "timeout_s" },
      h("option", { value: "" }, "Default (1 h)"),
      ...[1, 8, 24].map(hours => h("option", { value: hours * HOUR }, `${hours} h`)))),
    field("User", h("input", { name: "user_id", maxlength: 200, autocomplete: "off" })),
    field("Session", h("input", { name: "session_id", maxlength: 200, autocomplete: "off" })),
  ] });
  if (entered === null) return;
  const fields = Object.fromEntries([...entered].filter(([, value]) => value !== ""));
  const body = fields.timeout_s ? { ...fields, timeout_s: Number(fields.timeout_s) } : fields;
  await attempt(async () => {
    const sandbox = await post("/v1/sandboxes?wait=0", body, { "Idempotency-Key": idempotencyKey() });
    notify(`Creating sandbox ${sandbox.id}…`);
  });
}

function field(label, control) {
  return h("label", { class: "field" }, label, control);
}

async function templates() {
  const options = [];
  await attempt(async () => {
    for await (const items of pages("/v1/templates")) options.push(...items.map(option));
  });
  return options;
}

function option({ name, builds }) {
  const usable = builds.some(build => build.ready_at !== null);
  return h("option", { value: name }, usable ? name : `${name} (${builds[0]?.state ?? "not built"})`);
}
