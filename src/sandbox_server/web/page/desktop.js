// The page of a link to a desktop: shows it, and with a control link lets a person take over.
// Query parameters of E2B's SDK: view_only, resize (scale, remote, off), autoconnect, and `bar=false` for embedding.

import RFB from "./vendor/novnc/core/rfb.js";
import { LinkRefused, readState, setHolder, viewerUrl } from "./desktop-link.js";
import { TypedKeys } from "./desktop-keyboard.js";

const POLL_MS = 2000;
const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10000;

const query = new URLSearchParams(location.search);
const is = (name, text) => query.get(name)?.toLowerCase() === text;
const element = (id) => document.getElementById(id);
const [screen, status, message] = ["screen", "status", "message"].map(element);
const clipboardText = element("clipboard-text");

let state = null;
let rfb = null;
let shownMode = null;
let wait = FIRST_WAIT_MS;
let retry = null;
let isOver = false;
let isAsking = false;

const typedKeys = new TypedKeys(element("typed"), () => rfb);

function wantedMode() {
  return state.is_mine && !is("view_only", "true") ? "control" : "view";
}

function connect() {
  clearTimeout(retry);
  retry = null;
  if (isOver || state === null || !state.stream || state.sandbox !== "running") return;
  disconnect();
  shownMode = wantedMode();
  const opened = new RFB(screen, viewerUrl(shownMode), { shared: true });
  rfb = opened;
  opened.viewOnly = shownMode === "view";
  opened.scaleViewport = !is("resize", "off");
  opened.resizeSession = is("resize", "remote") && shownMode === "control";
  opened.background = "#14171c";
  opened.addEventListener("connect", () => {
    wait = FIRST_WAIT_MS;
    if (shownMode === "control") opened.focus();
    show();
  });
  opened.addEventListener("clipboard", (event) => takeClipboard(event.detail.text));
  opened.addEventListener("disconnect", () => {
    if (rfb !== opened) return;
    rfb = null;
    connectLater();
    show();
  });
}

function disconnect() {
  const closing = rfb;
  rfb = null;
  closing?.disconnect();
}

function connectLater() {
  if (isOver || retry !== null) return;
  retry = setTimeout(async () => { await ask(); connect(); }, wait);
  wait = Math.min(wait * 2, LONGEST_WAIT_MS);
}

function takeState(current) {
  state = current;
  const mayConnect = state.stream && state.sandbox === "running";
  if (!mayConnect) disconnect();
  else if (rfb === null ? retry === null : shownMode !== wantedMode()) connect();
  show();
}

async function ask() {
  if (isAsking || isOver) return;
  isAsking = true;
  try {
    takeState(await readState());
  } catch (error) {
    if (error instanceof LinkRefused) end();
    else status.textContent = "The server does not answer; trying again …";
  } finally {
    isAsking = false;
  }
}

async function want(holder) {
  const buttons = ["take", "return"].map(element);
  for (const each of buttons) each.disabled = true;
  try {
    takeState(await setHolder(holder));
  } catch (error) {
    if (error instanceof LinkRefused) end();
    else status.textContent = error.message;
  } finally {
    for (const each of buttons) each.disabled = false;
  }
}

function end() {
  isOver = true;
  clearTimeout(retry);
  disconnect();
  state = null;
  message.textContent = "This link has expired or was revoked. Ask the sandbox's owner for a new one.";
  message.hidden = false;
  status.textContent = "Disconnected";
  for (const id of ["take", "return", "clipboard-toggle", "keyboard", "clipboard"]) element(id).hidden = true;
  document.body.classList.remove("mine");
}

function show() {
  if (state === null) return;
  const mayControl = state.mode === "control" && !is("view_only", "true");
  document.body.classList.toggle("mine", state.is_mine);
  element("take").hidden = !mayControl || state.is_mine || state.holder === "person";
  element("return").hidden = !mayControl || !state.is_mine;
  element("clipboard-toggle").hidden = !state.is_mine;
  element("keyboard").hidden = !state.is_mine || !matchMedia("(pointer: coarse)").matches;
  if (!state.is_mine) element("clipboard").hidden = true;
  status.textContent = describe();
}

function describe() {
  if (!state.stream) return "Streaming of this desktop is off.";
  if (state.sandbox !== "running") return `The sandbox is ${state.sandbox}.`;
  if (rfb === null) return "Reconnecting …";
  if (state.is_mine) return "You have control. Actions of the agent are refused.";
  if (state.holder === "agent") return "You are watching. The agent has control.";
  return state.name === null ? "A person has control." : `${state.name} has control.`;
}

function takeClipboard(text) {
  clipboardText.value = text;
  if (state?.is_mine && document.hasFocus()) navigator.clipboard?.writeText(text).catch(() => {});
}

element("take").addEventListener("click", () => want("person"));
element("return").addEventListener("click", () => want("agent"));
element("keyboard").addEventListener("click", () => typedKeys.open());
element("clipboard-toggle").addEventListener("click", (event) => {
  const panel = element("clipboard");
  panel.hidden = !panel.hidden;
  event.currentTarget.setAttribute("aria-expanded", String(!panel.hidden));
});
clipboardText.addEventListener("input", () => rfb?.clipboardPasteFrom(clipboardText.value));
element("fullscreen").addEventListener("click", () => {
  if (document.fullscreenElement) document.exitFullscreen();
  else document.documentElement.requestFullscreen();
});
document.body.classList.toggle("bare", is("bar", "false"));

ask();
setInterval(() => { if (!document.hidden) ask(); }, POLL_MS);
