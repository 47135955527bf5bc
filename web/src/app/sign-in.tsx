import { type FormEvent, useState } from "react";
import type { Login } from "../api/client.ts";
import { signIn } from "../api/login.ts";
import { Problem } from "../api/problem.ts";
import { Button } from "../ui/button.tsx";

const messageOf = (problem: unknown): string => {
  if (problem instanceof Problem && problem.status === 401) return "This API key is invalid or was revoked.";
  return problem instanceof Error ? problem.message : String(problem);
};

export function SignIn({ notice, signedIn }: { notice: string; signedIn: (login: Login) => void }) {
  const [problem, setProblem] = useState("");
  const [isBusy, setIsBusy] = useState(false);

  async function submit(event: FormEvent<HTMLFormElement>) {
    event.preventDefault();
    const key = String(new FormData(event.currentTarget).get("key")).trim();
    setIsBusy(true);
    setProblem("");
    try {
      signedIn(await signIn(key));
    } catch (refused) {
      setProblem(messageOf(refused));
    } finally {
      setIsBusy(false);
    }
  }

  return (
    <main className="mx-auto mt-[9vh] max-w-96 rounded-xl border border-line bg-card p-6 max-sm:mt-4 max-sm:border-0">
      <h1 className="text-xl font-semibold">sandbox-server</h1>
      <p className="mt-1 mb-4 text-faint">Sandboxes for your agents: live states, logs and terminals.</p>
      {notice && (
        <p className="mb-4 rounded-md bg-shade p-2" role="status">
          {notice}
        </p>
      )}
      <form onSubmit={submit}>
        <label htmlFor="key" className="mb-1 block font-semibold">
          API key
        </label>
        <input
          id="key"
          name="key"
          type="password"
          required
          autoComplete="off"
          spellCheck={false}
          placeholder="sbx_…"
          aria-describedby="key-hint key-problem"
          className="w-full rounded-md border border-line bg-page px-3 py-2"
        />
        <p id="key-hint" className="my-2 text-faint">
          The server printed a key at its first start. The key is not stored; this browser stays signed in for
          twelve hours.
        </p>
        <p id="key-problem" role="alert" className="mb-2 text-bad empty:hidden">
          {problem}
        </p>
        <Button type="submit" kind="main" className="w-full justify-center" disabled={isBusy}>
          Sign in
        </Button>
      </form>
    </main>
  );
}
