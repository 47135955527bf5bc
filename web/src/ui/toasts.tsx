import { Toast } from "@base-ui/react/toast";
import type { ReactNode } from "react";

/** Provide notices, which appear at the lower right. */
export function Toasts({ children }: { children: ReactNode }) {
  return (
    <Toast.Provider timeout={8000}>
      {children}
      <Toast.Portal>
        <Toast.Viewport className="fixed right-4 bottom-4 z-20 flex w-[min(26rem,calc(100vw-2rem))] flex-col gap-2">
          <ToastList />
        </Toast.Viewport>
      </Toast.Portal>
    </Toast.Provider>
  );
}

function ToastList() {
  const { toasts } = Toast.useToastManager();
  return toasts.map((toast) => (
    <Toast.Root
      key={toast.id}
      toast={toast}
      className="flex items-start gap-2 rounded-lg border border-l-4 border-line border-l-accent bg-card px-3 py-2 shadow-lg data-[type=bad]:border-l-bad"
    >
      <Toast.Content className="min-w-0 flex-1">
        <Toast.Title className="font-medium break-words" />
        <Toast.Description className="text-faint break-words" />
      </Toast.Content>
      <Toast.Close aria-label="Dismiss" className="rounded px-1.5 text-faint hover:bg-shade">
        ✕
      </Toast.Close>
    </Toast.Root>
  ));
}

/** Return a function that shows the failure of an action. */
export function useFailures(): (problem: unknown) => void {
  const { add } = Toast.useToastManager();
  return (problem) => {
    const message = problem instanceof Error ? problem.message : String(problem);
    add({ title: message, type: "bad", priority: "high" });
  };
}
