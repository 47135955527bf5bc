import { Dialog as BaseDialog } from "@base-ui/react/dialog";
import type { ReactNode } from "react";

interface DialogProps {
  title: string;
  close: () => void;
  children: ReactNode;
}

export function Dialog({ title, close, children }: DialogProps) {
  return (
    <BaseDialog.Root open onOpenChange={(isOpen) => !isOpen && close()}>
      <BaseDialog.Portal>
        <BaseDialog.Backdrop className="fixed inset-0 bg-black/45" />
        <BaseDialog.Popup className="fixed top-1/2 left-1/2 max-h-[calc(100vh-2rem)] w-[min(30rem,calc(100vw-2rem))] -translate-1/2 overflow-auto rounded-xl border border-line bg-card p-5">
          <BaseDialog.Title className="mb-3 text-lg font-semibold">{title}</BaseDialog.Title>
          {children}
        </BaseDialog.Popup>
      </BaseDialog.Portal>
    </BaseDialog.Root>
  );
}
