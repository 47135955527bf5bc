import { api, type Login, unwrap } from "./client.ts";
import { isSignedOut } from "./problem.ts";

const REMEMBERED = "sandbox-server.login";

/** Sign in with an API key, which is not stored: the browser gets a cookie that scripts cannot read. */
export async function signIn(key: string): Promise<Login> {
  const login = await unwrap(api.POST("/v1/login", { headers: { "X-API-Key": key } }));
  localStorage.setItem(REMEMBERED, login.id);
  return login;
}

/** Find the current session, if it was created on this page. */
export async function findLogin(): Promise<Login | null> {
  if (localStorage.getItem(REMEMBERED) === null) return null;
  const login = await unwrap(api.GET("/v1/login")).catch((problem: unknown) => {
    if (isSignedOut(problem)) return null;
    throw problem;
  });
  if (login === null || login.id === localStorage.getItem(REMEMBERED)) return login;
  // Without TLS a sandbox's page could have set the cookie: the user would work in the attacker's session.
  await signOut();
  return null;
}

export async function signOut(): Promise<void> {
  localStorage.removeItem(REMEMBERED);
  await unwrap(api.DELETE("/v1/login")).catch((problem: unknown) => {
    if (!isSignedOut(problem)) throw problem;
  });
}

export const mayChange = (login: Login): boolean => login.scopes.some((scope) => scope !== "read");
