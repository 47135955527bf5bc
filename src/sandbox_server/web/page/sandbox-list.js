import { get, pages } from "./api.js";
import { ENDED } from "./state.js";

const BATCH_MS = 150, RETRY_MS = 2000;
const MAX_SINGLE_READS = 20;
const LARGEST_PAGE = 200;

/**
 * All sandboxes, kept current by reading a sandbox again when there is an event about it.
 *
 * Responses can arrive out of order: a read is ignored if a later one has already updated the sandbox.
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

  /** Read all sandboxes. */
  async load() {
    const started = this._start();
    const found = new Set();
    const query = { limit: LARGEST_PAGE };
    const states = this.withEnded ? ENDED : [];
    for (const parameters of [query, ...states.map(state => ({ ...query, state }))]) {
      for await (const items of pages("/v1/sandboxes", parameters)) {
        items.forEach(sandbox => found.add(sandbox.id));
        this._update(items, started);
      }
    }
    const gone = [...this.sandboxes.keys()].filter(id => !found.has(id) && this._isCurrent(id, started));
    this._remove(gone, started);
  }

  /** Schedule reading a sandbox after an event about it. */
  refresh(id) {
    this._due.add(id);
    this._timer ??= this._readIn(BATCH_MS);
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
    let delay = BATCH_MS;
    this._due.clear();
    try {
      if (due.length > MAX_SINGLE_READS) await this.load();
      else await Promise.all(due.map(id => this._read(id)));
      await this._readQueue();
    } catch {
      due.forEach(id => this._due.add(id)); // the server is unreachable
      delay = RETRY_MS;
    }
    this._timer = this._due.size > 0 && !this._isClosed ? this._readIn(delay) : null;
  }

  async _read(id) {
    const started = this._start();
    try {
      this._update([await get(`/v1/sandboxes/${id}`)], started);
    } catch (problem) {
      if (problem.status !== 404) throw problem;
      this._remove([id], started);
    }
  }

  // Queue positions change without events when another sandbox leaves the queue.
  async _readQueue() {
    const waiting = [...this.sandboxes.values()].filter(sandbox => sandbox.queue !== null);
    if (waiting.some(sandbox => sandbox.state === "queued")) {
      const started = this._start();
      this._update((await get(`/v1/sandboxes?state=queued&limit=${LARGEST_PAGE}`)).items, started);
    }
    const others = waiting.filter(sandbox => sandbox.state !== "queued").slice(0, MAX_SINGLE_READS);
    await Promise.all(others.map(sandbox => this._read(sandbox.id)));
  }

  _start() {
    this._reads += 1;
    return this._reads;
  }

  _isCurrent(id, started) {
    return (this._readAt.get(id) ?? 0) <= started;
  }

  _update(items, started) {
    const current = items.filter(({ id }) => this._isCurrent(id, started));
    for (const sandbox of current) {
      this._readAt.set(sandbox.id, started);
      if (!this.withEnded && ENDED.includes(sandbox.state)) this.sandboxes.delete(sandbox.id);
      else this.sandboxes.set(sandbox.id, sandbox);
    }
    this._changed(current.map(({ id }) => id));
  }

  _remove(ids, started) {
    for (const id of ids) {
      this._readAt.set(id, started);
      this.sandboxes.delete(id);
    }
    this._changed(ids);
  }
}
