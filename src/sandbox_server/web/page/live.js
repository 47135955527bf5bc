// The live view of a browser: its tabs, the page of one of them, and with a control link the person's input.

import { Connection, LinkRefused, readLink } from "./live-connection.js";
import { Input } from "./live-input.js";

const FIRST_WAIT_MS = 500;
const LONGEST_WAIT_MS = 10000;
const FIRST_PICTURE_MS = 600;
const PICTURE = { format: "jpeg", quality: 70 };
const LARGEST = { maxWidth: 1920, maxHeight: 1200 };

const element = (id) => document.getElementById(id);
const [screen, picture, tabList, address, status, message, dialog] = [
  "screen", "picture", "tabs", "address", "status", "message", "dialog",
].map(element);

const tabs = new Map(); // information of targets by their ids
let link = null;
let connection = null;
let shown = null; // { targetId, sessionId, frames, look }
let recent = []; // ids of the targets that were shown, the last one last
let follows = true;
let isListing = false;
let wait = FIRST_WAIT_MS;
let retry = null;
let isOver = false;

const controls = () => link?.mode === "control";
const input = new Input(screen, picture, (method, params) => {
  if (!controls() || shown?.sessionId === undefined) return false;
  connection.call(method, params, shown.sessionId).catch(() => {});
  return true;
});

async function connect() {
  retry = null;
  if (isOver) return;
  tabs.clear();
  shown = null;
  try {
    link = await readLink();
    if (!controls() && link.sandbox !== "running") return connectLater();
    connection = await Connection.open({ onEvent: takeEvent, onClose: takeClose });
    wait = FIRST_WAIT_MS;
    isListing = true; // the browser lists the tabs that are there, in no order
    await connection.call("Target.setDiscoverTargets", { discover: true, filter: [{ type: "page" }] });
  } catch (error) {
    if (error instanceof LinkRefused) end();
    else if (connection === null) connectLater();
  } finally {
    isListing = false;
    render();
  }
}

function takeClose(closed, error) {
  if (connection !== null && closed !== connection) return;
  const wasOpen = connection !== null;
  connection = null;
  if (error instanceof LinkRefused) end();
  else if (wasOpen) connectLater();
  render();
}

function connectLater() {
  if (retry !== null) return;
  retry = setTimeout(connect, wait);
  wait = Math.min(wait * 2, LONGEST_WAIT_MS);
}

function end() {
  isOver = true;
  connection?.close();
  message.textContent = "This link has expired or was revoked. Ask the browser's owner for a new one.";
  message.hidden = false;
}

function takeEvent({ method, params, sessionId }, from) {
  if (from !== connection && connection !== null) return;
  if (method === "Target.targetCreated" || method === "Target.targetInfoChanged") takeTab(params.targetInfo);
  else if (method === "Target.targetDestroyed" || method === "Target.targetCrashed") removeTab(params.targetId);
  else if (sessionId === undefined || sessionId !== shown?.sessionId) return;
  else if (method === "Page.screencastFrame") takeFrame(params);
  else if (method === "Page.javascriptDialogOpening") askPerson(params);
  else if (method === "Page.javascriptDialogClosed") dialog.hidden = true;
}

function takeTab(info) {
  if (info.type !== "page" || info.url.startsWith("devtools:")) return;
  const before = tabs.get(info.targetId);
  tabs.set(info.targetId, info);
  const isChanged = before?.url !== info.url;
  if (shown === null || (follows && isChanged && !isListing)) show(info.targetId);
  if (shown.targetId === info.targetId && (isChanged || before?.title !== info.title)) lookAgain(shown);
  render();
}

function removeTab(targetId) {
  tabs.delete(targetId);
  if (shown?.targetId === targetId) {
    shown = null;
    picture.hidden = dialog.hidden = true;
    const next = recent.findLast((each) => tabs.has(each)) ?? [...tabs.keys()].at(-1);
    if (next !== undefined) show(next);
  }
  render();
}

async function show(targetId) {
  if (shown?.targetId === targetId) return;
  const before = shown;
  recent = [...recent.filter((each) => each !== targetId && tabs.has(each)), targetId];
  const wanted = (shown = { targetId, frames: 0 });
  dialog.hidden = true;
  render();
  if (before?.sessionId !== undefined) leave(before.sessionId);
  try {
    const { sessionId } = await connection.call("Target.attachToTarget", { targetId, flatten: true });
    if (shown !== wanted) return leave(sessionId);
    wanted.sessionId = sessionId;
    await connection.call("Page.enable", {}, sessionId);
    await connection.call("Page.startScreencast", { ...PICTURE, ...LARGEST }, sessionId);
    setTimeout(() => takePicture(wanted), FIRST_PICTURE_MS);
  } catch {
    if (shown === wanted) shown = null; // the tab was closed meanwhile
  }
}

function leave(sessionId) {
  connection?.call("Target.detachFromTarget", { sessionId }).catch(() => {});
}

// Tabs in the background send no frames.
async function takePicture(wanted) {
  if (wanted.frames > 0 || !(await takeStill(wanted))) return;
  setTimeout(() => takePicture(wanted), 2 * FIRST_PICTURE_MS);
}

// The frame of a page can be lost while its tab navigates, and a page that does not change sends no other.
function lookAgain(wanted) {
  clearTimeout(wanted.look);
  wanted.look = setTimeout(() => takeStill(wanted), FIRST_PICTURE_MS);
}

async function takeStill(wanted) {
  if (shown !== wanted || wanted.sessionId === undefined || connection === null) return false;
  const { frames } = wanted;
  try {
    const [{ data }, { cssVisualViewport: size }] = await Promise.all([
      connection.call("Page.captureScreenshot", PICTURE, wanted.sessionId),
      connection.call("Page.getLayoutMetrics", {}, wanted.sessionId),
    ]);
    if (shown === wanted && wanted.frames === frames) await paint(data, { width: size.clientWidth, height: size.clientHeight });
    return true;
  } catch {
    return false; // the tab was closed
  }
}

async function takeFrame({ data, metadata, sessionId: frame }) {
  const { sessionId } = shown;
  shown.frames += 1;
  await paint(data, { width: metadata.deviceWidth, height: metadata.deviceHeight });
  // The browser sends the next frame after this: a slow viewer gets fewer.
  connection?.call("Page.screencastFrameAck", { sessionId: frame }, sessionId).catch(() => {});
}

async function paint(data, size) {
  const next = new Image();
  next.src = `data:image/jpeg;base64,${data}`;
  await next.decode().catch(() => {});
  picture.src = next.src;
  picture.hidden = false;
  input.size = size;
}

function askPerson({ message: text, type, defaultPrompt }) {
  element("dialog-text").textContent = text;
  element("dialog-answer").hidden = type !== "prompt";
  element("dialog-answer").value = defaultPrompt ?? "";
  element("dialog-dismiss").hidden = type === "alert";
  for (const id of ["dialog-accept", "dialog-dismiss"]) element(id).disabled = !controls();
  dialog.hidden = false;
}

function answerDialog(accept) {
  call("Page.handleJavaScriptDialog", { accept, promptText: element("dialog-answer").value });
  dialog.hidden = true;
}

// A command of the person to the page that is shown.
async function call(method, params = {}) {
  if (!controls() || shown?.sessionId === undefined) return null;
  return connection.call(method, params, shown.sessionId).catch(() => null);
}

async function goInHistory(step) {
  const history = await call("Page.getNavigationHistory");
  const entry = history?.entries[history.currentIndex + step];
  if (entry !== undefined) call("Page.navigateToHistoryEntry", { entryId: entry.id });
}

function select(targetId) {
  follows = false;
  if (controls()) connection?.call("Target.activateTarget", { targetId }).catch(() => {});
  show(targetId);
}

function render() {
  status.textContent = describe();
  document.body.classList.toggle("watching", !controls());
  for (const id of ["tools", "new-tab"]) element(id).hidden = !controls();
  address.readOnly = !controls();
  const info = tabs.get(shown?.targetId);
  if (document.activeElement !== address) address.value = info?.url ?? "";
  document.title = info?.title ? `${info.title} – Browser` : "Browser";
  element("follow").setAttribute("aria-pressed", String(follows));
  tabList.replaceChildren(...[...tabs.values()].map(tabOf));
}

function describe() {
  if (isOver) return "Disconnected";
  if (connection === null && link !== null && link.sandbox !== "running") return `The browser's sandbox is ${link.sandbox}.`;
  if (connection === null) return "Reconnecting …";
  return controls() ? "You can control the browser." : "You are watching.";
}

function tabOf(info) {
  const tab = document.createElement("div");
  const isShown = info.targetId === shown?.targetId;
  tab.className = isShown ? "tab shown" : "tab";
  const title = document.createElement("button");
  title.type = "button";
  title.className = "title";
  title.role = "tab";
  title.setAttribute("aria-selected", String(isShown));
  title.textContent = info.title || info.url || "New tab";
  title.title = info.url;
  title.addEventListener("click", () => select(info.targetId));
  tab.append(title);
  if (controls()) {
    const close = document.createElement("button");
    close.type = "button";
    close.className = "close";
    close.textContent = "×";
    close.setAttribute("aria-label", `Close ${title.textContent}`);
    close.addEventListener("click", () => connection?.call("Target.closeTarget", { targetId: info.targetId }).catch(() => {}));
    tab.append(close);
  }
  return tab;
}

element("back").addEventListener("click", () => goInHistory(-1));
element("forward").addEventListener("click", () => goInHistory(1));
element("reload").addEventListener("click", () => call("Page.reload"));
element("new-tab").addEventListener("click", () => connection?.call("Target.createTarget", { url: "about:blank" }).catch(() => {}));
element("go").addEventListener("submit", (event) => {
  event.preventDefault();
  const text = address.value.trim();
  if (!text) return;
  call("Page.navigate", { url: /^[a-z][a-z0-9+.-]*:/i.test(text) ? text : `https://${text}` });
  screen.focus();
});
element("follow").addEventListener("click", () => { follows = !follows; render(); });
element("dialog-accept").addEventListener("click", () => answerDialog(true));
element("dialog-dismiss").addEventListener("click", () => answerDialog(false));
element("fullscreen").addEventListener("click", () => {
  if (document.fullscreenElement) document.exitFullscreen();
  else document.documentElement.requestFullscreen();
});
document.body.classList.toggle("bare", new URLSearchParams(location.search).get("bar") === "false");

connect();
