import { access, get } from "./api.js";

const FIRST_WAIT_MS = 500, LONGEST_WAIT_MS = 10_000;
const HIDDEN_FOR_MS = 10_000;

/**
 * Follow a stream of server-sent events: resumes at the last message, and disconnects while the page is hidden, because
 * browsers open only a few connections per server.
 *
 * `received` gets each message, `state` gets "live", "lost" or "over". `missed` is called after a reconnection without a
 * position to resume from. `isOver` decides whether to stop when the server has closed the stream. Returns a function
 * that ends the stream.
 */
export function follow(path, query, { received, state, missed = () => {}, isOver = async () => false }) {
  let source = null, last = null, timer = null, wait = FIRST_WAIT_MS, broken = false, ended = false;

  function open() {
    const parameters = new URLSearchParams(query);
    if (last !== null) {
      parameters.delete("tail");
      parameters.set("after", last);
    }
    source = new EventSource(`${path}?${parameters}`);
    source.onopen = opened;
    source.onmessage = ({ data, lastEventId }) => {
      last = lastEventId || last;
      received(JSON.parse(data));
    };
    source.onerror = lost;
  }

  function opened() {
    wait = FIRST_WAIT_MS;
    state("live");
    if (broken && last === null) missed();
    broken = false;
  }

  function lost() {
    broken = true;
    state("lost");
    if (source.readyState === EventSource.CLOSED) recover();
  }

  // The browser does not reconnect: the stream has ended, the session has ended, or a proxy answered with an error.
  async function recover() {
    close();
    try {
      await get("/v1/login");
      ended ||= await isOver();
      if (ended) return state("over");
    } catch (problem) {
      if (problem.status === 401) return end();
    }
    if (ended) return;
    timer = setTimeout(open, wait);
    wait = Math.min(wait * 2, LONGEST_WAIT_MS);
  }

  function close() {
    clearTimeout(timer);
    source?.close();
    source = null;
  }

  function updateVisibility() {
    clearTimeout(timer);
    if (document.hidden) timer = setTimeout(close, HIDDEN_FOR_MS);
    else if (source === null && !ended) {
      broken = true;
      open();
    }
  }

  function end() {
    ended = true;
    close();
    document.removeEventListener("visibilitychange", updateVisibility);
    access.removeEventListener("refused", end);
  }

  document.addEventListener("visibilitychange", updateVisibility);
  access.addEventListener("refused", end);
  open();
  return end;
}
