import { CSPProvider } from "@base-ui/react/csp-provider";
import { QueryClient, QueryClientProvider } from "@tanstack/react-query";
import { RouterProvider } from "@tanstack/react-router";
import { StrictMode } from "react";
import { createRoot } from "react-dom/client";
import { router } from "./app/router.tsx";
import { SessionProvider } from "./app/session.tsx";
import "./styles.css";

// The stream of events keeps what is cached current; nothing is read again because of its age.
const queries = new QueryClient({
  defaultOptions: {
    queries: { staleTime: Number.POSITIVE_INFINITY, retry: false, refetchOnWindowFocus: false },
  },
});

// After an upgrade an open page asks for files that no longer exist.
addEventListener("vite:preloadError", () => location.reload());

const element = document.getElementById("root");
if (element === null) throw new Error("The document has no #root.");
createRoot(element).render(
  <StrictMode>
    <CSPProvider disableStyleElements>
      <QueryClientProvider client={queries}>
        <SessionProvider>
          <RouterProvider router={router} />
        </SessionProvider>
      </QueryClientProvider>
    </CSPProvider>
  </StrictMode>,
);
