import { useQuery } from "@tanstack/react-query";
import { type FormEvent, type ReactNode, useState } from "react";
import { api, idempotencyKey, type Sandbox, unwrap } from "../api/client.ts";
import { Button } from "../ui/button.tsx";
import { Dialog } from "../ui/dialog.tsx";

const HOUR_S = 3600;
const INPUT = "mt-0.5 w-full rounded-md border border-line bg-page px-3 py-1.5 text-text";

function Field({ label, children }: { label: string; children: ReactNode }) {
  return (
    // biome-ignore lint/a11y/noLabelWithoutControl: the control is the child
    <label className="mb-3 block text-faint">
      {label}
      {children}
    </label>
  );
}

function useTemplates() {
  return useQuery({
    queryKey: ["templates"],
    queryFn: async () =>
      (await unwrap(api.GET("/v1/templates", { params: { query: { limit: 200 } } }))).items,
    staleTime: 0,
  });
}

function bodyOf(form: HTMLFormElement) {
  const entered = [...new FormData(form)].filter(([, value]) => value !== "");
  const { timeout_s, name, ...fields } = Object.fromEntries(entered) as Record<string, string>;
  return {
    ...fields,
    ...(timeout_s ? { timeout_s: Number(timeout_s) } : {}),
    ...(name ? { metadata: { name } } : {}),
  };
}

/** Ask for what a new sandbox should be, and create it; the list shows it through its events. */
export function CreateDialog({ close, created }: { close: () => void; created: (sandbox: Sandbox) => void }) {
  const templates = useTemplates();
  const [problem, setProblem] = useState("");
  const [key] = useState(idempotencyKey); // a second click creates no second sandbox

  async function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    try {
      const body = bodyOf(event.currentTarget);
      const params = { query: { wait: 0 }, header: { "Idempotency-Key": key } };
      created(await unwrap(api.POST("/v1/sandboxes", { params, body })));
      close();
    } catch (refused) {
      setProblem(refused instanceof Error ? refused.message : String(refused));
    }
  }

  return (
    <Dialog title="New sandbox" close={close}>
      <form onSubmit={submit}>
        <Field label="Template">
          <select name="template" className={INPUT}>
            <option value="">Default</option>
            {templates.data?.map(({ name, builds }) => (
              <option key={name} value={name}>
                {builds.some(({ ready_at }) => ready_at !== null)
                  ? name
                  : `${name} (${builds[0]?.state ?? "not built"})`}
              </option>
            ))}
          </select>
        </Field>
        <Field label="Timeout">
          <select name="timeout_s" className={INPUT}>
            <option value="">Default (1 h)</option>
            {[1, 8, 24].map((hours) => (
              <option key={hours} value={hours * HOUR_S}>{`${hours} h`}</option>
            ))}
          </select>
        </Field>
        <Field label="Name">
          <input name="name" maxLength={200} autoComplete="off" className={INPUT} />
        </Field>
        <Field label="User">
          <input name="user_id" maxLength={200} autoComplete="off" className={INPUT} />
        </Field>
        <Field label="Session">
          <input name="session_id" maxLength={200} autoComplete="off" className={INPUT} />
        </Field>
        <p role="alert" className="mb-2 text-bad empty:hidden">
          {problem}
        </p>
        <div className="flex justify-end gap-2">
          <Button onClick={close}>Cancel</Button>
          <Button type="submit" kind="main">
            Create
          </Button>
        </div>
      </form>
    </Dialog>
  );
}
