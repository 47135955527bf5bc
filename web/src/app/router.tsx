import {
  createHashHistory,
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
} from "@tanstack/react-router";
import { FleetPage } from "../fleet/page.tsx";
import { NotFound } from "./not-found.tsx";
import { Shell } from "./shell.tsx";

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound });

const text = (value: unknown): string | undefined =>
  typeof value === "string" && value !== "" ? value : undefined;

const fleet = createRoute({
  getParentRoute: () => root,
  path: "/",
  component: FleetPage,
  validateSearch: (search): { q?: string | undefined } => ({ q: text(search.q) }),
});

const sandbox = createRoute({
  getParentRoute: () => root,
  path: "/sandboxes/$id",
  component: lazyRouteComponent(() => import("../sandbox/page.tsx"), "SandboxPage"),
  validateSearch: (search): { tab?: string | undefined } => ({ tab: text(search.tab) }),
});

export const router = createRouter({
  routeTree: root.addChildren([fleet, sandbox]),
  history: createHashHistory(),
  defaultPreload: "intent",
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
