import { pages, post, requestName } from "./api.js";
import { ask } from "./dialog.js";
import { h } from "./dom.js";
import { attempt, notify } from "./notices.js";

const HOUR = 3600;

/** Ask what a sandbox is to be, and create it: it appears in the list like any other. */
export async function askForSandbox() {
  const entered = await ask({ title: "New sandbox", act: "Create", fields: [
    field("Template", h("select", { name: "template" }, h("option", { value: "" }, "The usual one"), ...(await templates()))),
    field("Time", h("select", { name: "timeout_s" },
      h("option", { value: "" }, "As usual"),
      ...[1, 8, 24].map(hours => h("option", { value: hours * HOUR }, `${hours} h`)))),
    field("User", h("input", { name: "user_id", maxlength: 200, autocomplete: "off" })),
    field("Session", h("input", { name: "session_id", maxlength: 200, autocomplete: "off" })),
  ] });
  if (entered === null) return;
  const given = Object.fromEntries([...entered].filter(([, value]) => value !== ""));
  const body = given.timeout_s ? { ...given, timeout_s: Number(given.timeout_s) } : given;
  await attempt(async () => {
    const sandbox = await post("/v1/sandboxes?wait=0", body, { "Idempotency-Key": requestName() });
    notify(`Sandbox ${sandbox.id} is asked for.`);
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
