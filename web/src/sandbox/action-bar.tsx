import { useState } from "react";
import { callOf } from "../actions/calls.ts";
import { useActions } from "../actions/carry-out.ts";
import { limitsOf } from "../actions/limits.ts";
import type { Sandbox } from "../api/client.ts";
import { useSession } from "../app/session.tsx";
import { Button } from "../ui/button.tsx";
import { Confirm } from "../ui/confirm.tsx";
import { CopyMenu } from "../ui/copy-menu.tsx";

/** What can be done with a sandbox in its state. */
export function ActionBar({ sandbox }: { sandbox: Sandbox }) {
  const { id, state, target } = sandbox;
  const { mayChange } = useSession();
  const act = useActions();
  const [isDeleting, setIsDeleting] = useState(false);
  if (target === "gone") return null;
  const limits = limitsOf(mayChange);
  const change = state === "paused" || state === "pausing" ? "resume" : "pause";
  return (
    <div className="ml-auto flex flex-wrap gap-2">
      {state !== "queued" && (
        <>
          <Button {...limits} onClick={() => act(change, [id])}>
            {change === "pause" ? "Pause" : "Resume"}
          </Button>
          <CopyMenu calls={[callOf(change, id)]} />
        </>
      )}
      <Button kind="danger" {...limits} onClick={() => setIsDeleting(true)}>
        Delete
      </Button>
      {isDeleting && (
        <Confirm
          title={`Delete ${id}?`}
          act="Delete sandbox"
          close={() => setIsDeleting(false)}
          confirmed={() => act("delete", [id])}
        >
          All its files, processes and terminals are deleted permanently.
        </Confirm>
      )}
    </div>
  );
}
