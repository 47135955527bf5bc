import { call } from "./api.js";

const REMEMBERED = "sandbox-server.login";

/** Sign in with an API key, which is not stored: the browser gets a cookie that scripts cannot read. */
export async function signIn(key) {
  const login = await call("POST", "/v1/login", { headers: { "X-API-Key": key } });
  localStorage.setItem(REMEMBERED, login.id);
  return login;
}

/** Find the current session, if it was created on this page. */
export async function findLogin() {
  if (localStorage.getItem(REMEMBERED) === null) return null;
  const login = await call("GET", "/v1/login").catch(problem => {
    if (problem.status === 401) return null;
    throw problem;
  });
  if (login === null || login.id === localStorage.getItem(REMEMBERED)) return login;
  // Without TLS a sandbox's page could have set the cookie: the user would work in the attacker's session.
  await signOut();
  return null;
}

export async function signOut() {
  localStorage.removeItem(REMEMBERED);
  await call("DELETE", "/v1/login").catch(problem => {
    if (problem.status !== 401) throw problem;
  });
}

export function mayChange(login) {
  return login.scopes.some(scope => scope !== "read");
}
