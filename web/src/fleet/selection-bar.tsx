import { useState } from "react";
import { type Action, callOf } from "../actions/calls.ts";
import { useActions } from "../actions/carry-out.ts";
import { limitsOf } from "../actions/limits.ts";
import { Button } from "../ui/button.tsx";
import { copyText } from "../ui/clipboard.ts";
import { Confirm } from "../ui/confirm.tsx";
import { CopyMenu } from "../ui/copy-menu.tsx";

interface SelectionBarProps {
  ids: string[];
  mayChange: boolean;
  clear: () => void;
}

/** Actions on the selected sandboxes. */
export function SelectionBar({ ids, mayChange, clear }: SelectionBarProps) {
  const act = useActions();
  const [isDeleting, setIsDeleting] = useState(false);
  const number = ids.length === 1 ? "1 sandbox" : `${ids.length} sandboxes`;
  const limits = limitsOf(mayChange);
  const calls = (action: Action) => ids.map((id) => callOf(action, id));
  return (
    <section
      aria-label="Selection"
      className="flex flex-wrap items-center gap-2 border-t border-line bg-card px-4 py-2"
    >
      <strong className="mr-2">{number} selected</strong>
      <Button {...limits} onClick={() => act("pause", ids)}>
        Pause
      </Button>
      <CopyMenu calls={calls("pause")} label="Pause as" />
      <Button {...limits} onClick={() => act("resume", ids)}>
        Resume
      </Button>
      <CopyMenu calls={calls("resume")} label="Resume as" />
      <Button kind="danger" {...limits} onClick={() => setIsDeleting(true)}>
        Delete
      </Button>
      <CopyMenu calls={calls("delete")} label="Delete as" />
      <Button kind="quiet" onClick={() => copyText(ids.join("\n"))}>
        Copy ids
      </Button>
      <Button kind="quiet" className="ml-auto" onClick={clear}>
        Clear selection
      </Button>
      {isDeleting && (
        <Confirm
          title={`Delete ${number}?`}
          act={`Delete ${number}`}
          close={() => setIsDeleting(false)}
          confirmed={() => act("delete", ids)}
        >
          All files, processes and terminals of {number} are deleted permanently.
        </Confirm>
      )}
    </section>
  );
}
