import assert from "node:assert/strict";
import { test } from "node:test";
import type { LogEntry } from "../api/client.ts";
import { LogStore } from "./store.ts";

let seq = 0;
const output = (text: string, fields: object = {}): LogEntry => {
  seq += 1;
  return {
    seq,
    type: "stdout",
    source: "command",
    sandbox_id: "s",
    command_id: "c1",
    at: "2026-01-01T00:00:00Z",
    text,
    ...fields,
  } as LogEntry;
};
const texts = (store: LogStore): string[] => store.lines.map(({ text }) => text);

test("records are joined to lines", () => {
  const store = new LogStore();
  store.add([output("one\ntw"), output("o\n\nfour"), output("\n")]);
  assert.deepEqual(texts(store), ["one", "two", "", "four"]);
});

test("streams and commands do not mix within a line", () => {
  const store = new LogStore();
  store.add([output("a"), output("b", { type: "stderr" }), output("c", { command_id: "c2" }), output("A\n")]);
  assert.deepEqual(texts(store), ["aA", "b", "c"]);
});

test("a line keeps the number of the record that began it", () => {
  const store = new LogStore();
  const first = output("begin");
  store.add([first, output(" end\n")]);
  assert.equal(store.lines[0]?.seq, (first as { seq: number }).seq);
});

test("bytes that are no text are shown as far as possible", () => {
  const store = new LogStore();
  store.add([output("", { text: null, base64: btoa("ok\xff\n") })]);
  assert.deepEqual(texts(store), ["ok\ufffd"]);
});

test("long lines are cut and marked", () => {
  const store = new LogStore();
  store.add([output("x".repeat(3000)), output(`${"y".repeat(3000)}\n`)]);
  assert.equal(store.lines[0]?.text.length, 4000);
  assert.equal(store.lines[0]?.isCut, true);
});

test("the oldest lines are dropped from 200,000 on", () => {
  const store = new LogStore();
  store.add([output(`${"line\n".repeat(200_001)}`)]);
  assert.equal(store.lines.length + store.dropped, 200_001);
  assert.ok(store.lines.length <= 200_000);
});
