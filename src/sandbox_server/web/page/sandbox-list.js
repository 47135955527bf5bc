import { get, pages } from "./api.js";
import { ENDED } from "./state.js";

const TOGETHER_MS = 150, AGAIN_MS = 2000;
const MOST_APART = 20;
const LARGEST_PAGE = 200;

/**
 * All sandboxes there are, kept as they are by reading again what events are about.
 *
 * A read counts only if none that was begun later has told of the same sandbox.
 */
export class SandboxList {
  constructor(changed) {
    this.sandboxes = new Map();
    this.withEnded = false;
    this._changed = changed;
    this._readAt = new Map();
    this._reads = 0;
    this._due = new Set();
    this._timer = null;
  }

  /** Read all of them. */
  async load() {
    const begun = this._begin();
    const there = new Set();
    const query = { limit: LARGEST_PAGE };
    const states = this.withEnded ? ENDED : [];
    for (const asked of [query, ...states.map(state => ({ ...query, state }))]) {
      for await (const items of pages("/v1/sandboxes", asked)) {
        items.forEach(sandbox => there.add(sandbox.id));
        this._take(items, begun);
      }
    }
    const gone = [...this.sandboxes.keys()].filter(id => !there.has(id) && this._isNews(id, begun));
    this._drop(gone, begun);
  }

  /** Note that something happened to a sandbox. */
  note(id) {
    this._due.add(id);
    this._timer ??= this._readIn(TOGETHER_MS);
  }

  close() {
    this._isClosed = true;
    clearTimeout(this._timer);
  }

  _readIn(delay) {
    return setTimeout(() => this._readDue(), delay);
  }

  async _readDue() {
    const due = [...this._due];
    let delay = TOGETHER_MS;
    this._due.clear();
    try {
      if (due.length > MOST_APART) await this.load();
      else await Promise.all(due.map(id => this._read(id)));
      await this._readQueue();
    } catch {
      due.forEach(id => this._due.add(id)); // the server is away
      delay = AGAIN_MS;
    }
    this._timer = this._due.size > 0 && !this._isClosed ? this._readIn(delay) : null;
  }

  async _read(id) {
    const begun = this._begin();
    try {
      this._take([await get(`/v1/sandboxes/${id}`)], begun);
    } catch (problem) {
      if (problem.status !== 404) throw problem;
      this._drop([id], begun);
    }
  }

  // Whoever leaves the line moves all behind, of which no event tells.
  async _readQueue() {
    const waiting = [...this.sandboxes.values()].filter(sandbox => sandbox.queue !== null);
    if (waiting.some(sandbox => sandbox.state === "queued")) {
      const begun = this._begin();
      this._take((await get(`/v1/sandboxes?state=queued&limit=${LARGEST_PAGE}`)).items, begun);
    }
    const others = waiting.filter(sandbox => sandbox.state !== "queued").slice(0, MOST_APART);
    await Promise.all(others.map(sandbox => this._read(sandbox.id)));
  }

  _begin() {
    this._reads += 1;
    return this._reads;
  }

  _isNews(id, begun) {
    return (this._readAt.get(id) ?? 0) <= begun;
  }

  _take(items, begun) {
    const news = items.filter(({ id }) => this._isNews(id, begun));
    for (const sandbox of news) {
      this._readAt.set(sandbox.id, begun);
      if (!this.withEnded && ENDED.includes(sandbox.state)) this.sandboxes.delete(sandbox.id);
      else this.sandboxes.set(sandbox.id, sandbox);
    }
    this._changed(news.map(({ id }) => id));
  }

  _drop(ids, begun) {
    for (const id of ids) {
      this._readAt.set(id, begun);
      this.sandboxes.delete(id);
    }
    this._changed(ids);
  }
}
