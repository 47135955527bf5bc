import { access } from "./api.js";
import { button, fill, h } from "./dom.js";
import { findLogin, signOut } from "./login.js";
import { attempt, notify } from "./notices.js";
import { showSandbox } from "./sandbox.js";
import { showSandboxes } from "./sandboxes.js";
import { showSignIn } from "./sign-in.js";
import { showTerminal } from "./terminal.js";

const ID = "([a-z0-9]{20})";
const VIEWS = [
  [new RegExp("^$"), showSandboxes],
  [new RegExp(`^sandboxes/${ID}$`), showSandbox],
  [new RegExp(`^sandboxes/${ID}/terminals/${ID}$`), showTerminal],
];
const STATES = { live: "Live", lost: "Connection lost, reconnecting…", over: "Ended" };

const header = document.getElementById("header");
const main = document.getElementById("main");
const connection = h("span", { class: "connection", role: "status" });

let login = null, leave = () => {};

function showConnection(state) {
  connection.className = `connection ${state}`;
  connection.textContent = STATES[state] ?? "";
}

function showHeader() {
  const words = login ? [connection, h("span", { class: "whose", title: `Signed in with ${login.key_prefix}…` }, login.key_name || login.tenant)] : [];
  const leaving = login ? button("Sign out", end, { class: "quiet" }) : null;
  fill(header,
    h("a", { class: "brand", href: "#" }, h("img", { src: "page/icon.svg", alt: "", width: 22, height: 22 }), "sandbox-server"),
    h("div", { class: "about" }, ...words),
    h("nav", { "aria-label": "More" }, h("a", { href: "docs" }, "API"), leaving));
}

function show() {
  leave();
  leave = () => {};
  showHeader();
  showConnection("");
  if (login === null) return showSignIn(main, signedIn);
  const path = location.hash.replace(/^#\/?/, "");
  const [view, found] = VIEWS.map(([pattern, view]) => [view, pattern.exec(path)]).find(([, found]) => found) ?? [null, null];
  if (view === null) return location.replace("#");
  document.title = "sandbox-server";
  leave = view(main, { login, showConnection, ids: found.slice(1) }) ?? (() => {});
  main.focus({ preventScroll: true });
  scrollTo(0, 0);
}

function signedIn(found) {
  login = found;
  show();
}

async function end() {
  const was = login;
  login = null; // requests in progress will get 401, which must not be reported
  leave();
  signedIn((await attempt(signOut)) ? null : was);
}

async function start() {
  try {
    login = await findLogin();
  } catch (problem) {
    notify(problem.message, { kind: "bad" });
  }
  show();
}

access.addEventListener("refused", () => {
  if (login === null) return;
  signedIn(null);
  notify("Your session has ended: it expired after twelve hours, or the API key was revoked.");
});
addEventListener("hashchange", show);
start();
