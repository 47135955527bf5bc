import type { QueryClient } from "@tanstack/react-query";
import type { Sandbox } from "../api/client.ts";

const BATCH_MS = 150;
const RETRY_MS = 2000;

/** How the store reads sandboxes; all of them, or those with these ids (a missing one is gone). */
export interface SandboxReader {
  all(): AsyncIterable<Sandbox[]>;
  some(ids: string[]): Promise<Sandbox[]>;
}

export const sandboxKey = (id: string) => ["sandbox", id] as const;
export const FLEET_KEY = ["fleet"] as const;

/**
 * Keeps the sandboxes in the query cache current: each has a key of its own, and the fleet is a list of ids.
 *
 * A sandbox is read again when there is an event about it. Answers can arrive out of order: a read is ignored if a later
 * one has already updated the sandbox.
 */
export class SandboxCache {
  readonly #cache: QueryClient;
  readonly #reader: SandboxReader;
  readonly #readAt = new Map<string, number>();
  readonly #known = new Set<string>();
  #reads = 0;
  #due = new Set<string>();
  #timer: ReturnType<typeof setTimeout> | undefined;
  #isClosed = false;

  constructor(cache: QueryClient, reader: SandboxReader) {
    this.#cache = cache;
    this.#reader = reader;
  }

  /** Read all sandboxes. */
  async load(): Promise<void> {
    const started = this.#start();
    const found = new Set<string>();
    for await (const page of this.#reader.all()) {
      for (const sandbox of page) found.add(sandbox.id);
      this.#update(page, started);
    }
    this.#remove(
      [...this.#known].filter((id) => !found.has(id)),
      started,
    );
    this.#publish();
  }

  /** Read all sandboxes, again and again until the server answers. */
  loadUntilRead(): void {
    this.load().catch(() => {
      if (!this.#isClosed) setTimeout(() => this.loadUntilRead(), RETRY_MS);
    });
  }

  /** Read a sandbox soon, together with others that change meanwhile. */
  refresh(id: string): void {
    this.#due.add(id);
    this.#timer ??= setTimeout(() => this.#readDue(), BATCH_MS);
  }

  open(): void {
    this.#isClosed = false;
  }

  close(): void {
    this.#isClosed = true;
    clearTimeout(this.#timer);
  }

  async #readDue(): Promise<void> {
    const due = [...this.#due, ...this.#queued()];
    this.#due.clear();
    let delay = BATCH_MS;
    try {
      const started = this.#start();
      const found = await this.#reader.some(due);
      const there = new Set(found.map(({ id }) => id));
      this.#update(found, started);
      this.#remove(
        due.filter((id) => !there.has(id)),
        started,
      );
      this.#publish();
    } catch {
      for (const id of due) this.#due.add(id); // the server is unreachable
      delay = RETRY_MS;
    }
    this.#timer =
      this.#due.size > 0 && !this.#isClosed ? setTimeout(() => this.#readDue(), delay) : undefined;
  }

  /** Queue positions change without events when another sandbox leaves the queue. */
  #queued(): string[] {
    return [...this.#known].filter(
      (id) => this.#cache.getQueryData<Sandbox>(sandboxKey(id))?.queue && !this.#due.has(id),
    );
  }

  #start(): number {
    this.#reads += 1;
    return this.#reads;
  }

  #isCurrent(id: string, started: number): boolean {
    return (this.#readAt.get(id) ?? 0) <= started;
  }

  #update(sandboxes: Sandbox[], started: number): void {
    for (const sandbox of sandboxes) {
      if (!this.#isCurrent(sandbox.id, started)) continue;
      this.#readAt.set(sandbox.id, started);
      this.#known.add(sandbox.id);
      this.#cache.setQueryData(sandboxKey(sandbox.id), sandbox);
    }
  }

  #remove(ids: string[], started: number): void {
    for (const id of ids) {
      if (!this.#isCurrent(id, started)) continue;
      this.#readAt.set(id, started);
      this.#known.delete(id);
      this.#cache.removeQueries({ queryKey: sandboxKey(id) });
    }
  }

  /** Ids are ULID-like: sorted by them, the newest is first. */
  #publish(): void {
    const ids = [...this.#known].sort().reverse();
    const shown = this.#cache.getQueryData<string[]>(FLEET_KEY);
    const isSame = shown?.length === ids.length && shown.every((id, index) => id === ids[index]);
    if (!isSame) this.#cache.setQueryData(FLEET_KEY, ids);
  }
}
