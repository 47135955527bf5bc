import { access, get } from "./api.js";

const FIRST_WAIT_MS = 500, LONGEST_WAIT_MS = 10_000;
const HIDDEN_FOR_MS = 10_000;

/**
 * Follow a stream: after a break where it was, and not while nobody looks, since a browser opens few connections to a server.
 *
 * `told` gets each message, `state` is told "live", "lost" or "over", and `missed` that something may have been, as nothing
 * had come yet to go on from. `isOver` is asked where the server will not go on. Gives a function that ends it.
 */
export function follow(path, query, { told, state, missed = () => {}, isOver = async () => false }) {
  let source = null, last = null, timer = null, wait = FIRST_WAIT_MS, broken = false, ended = false;

  function open() {
    const asked = new URLSearchParams(query);
    if (last !== null) {
      asked.delete("tail");
      asked.set("after", last);
    }
    source = new EventSource(`${path}?${asked}`);
    source.onopen = opened;
    source.onmessage = ({ data, lastEventId }) => {
      last = lastEventId || last;
      told(JSON.parse(data));
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

  // The browser has given up: the stream is over, nobody is signed in any more, or something in between said so.
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

  function look() {
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
    document.removeEventListener("visibilitychange", look);
    access.removeEventListener("refused", end);
  }

  document.addEventListener("visibilitychange", look);
  access.addEventListener("refused", end);
  open();
  return end;
}
