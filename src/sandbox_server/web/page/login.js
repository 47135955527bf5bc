import { call } from "./api.js";

const REMEMBERED = "sandbox-server.login";

/** Sign in with a key, which is kept nowhere: the browser gets a cookie that no script can read. */
export async function signIn(key) {
  const login = await call("POST", "/v1/login", { headers: { "X-API-Key": key } });
  localStorage.setItem(REMEMBERED, login.id);
  return login;
}

/** Find who is signed in, if it is somebody who signed in here. */
export async function findLogin() {
  if (localStorage.getItem(REMEMBERED) === null) return null;
  const login = await call("GET", "/v1/login").catch(problem => {
    if (problem.status === 401) return null;
    throw problem;
  });
  if (login === null || login.id === localStorage.getItem(REMEMBERED)) return login;
  // A page of a sandbox can have set the cookie, where there is no TLS, and would see all that is done here.
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
