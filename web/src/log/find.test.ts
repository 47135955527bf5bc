import assert from "node:assert/strict";
import { test } from "node:test";
import { findLines, nextFound } from "./find.ts";
import type { Line } from "./store.ts";

const line = (text: string): Line => ({
  seq: 1,
  at: null,
  source: "",
  label: "",
  commandId: null,
  kind: "stdout",
  text,
  isCut: false,
});

test("texts are found whatever their case and colour", () => {
  assert.deepEqual(
    findLines([line("Error"), line("fine"), line("an e\x1b[31mrr\x1b[0mor")], "error"),
    [0, 2],
  );
  assert.deepEqual(findLines([line("x")], ""), []);
});

test("finding goes round", () => {
  assert.equal(nextFound([2, 5, 9], null, false), 2);
  assert.equal(nextFound([2, 5, 9], 5, false), 9);
  assert.equal(nextFound([2, 5, 9], 9, false), 2);
  assert.equal(nextFound([2, 5, 9], 2, true), 9);
  assert.equal(nextFound([], 2, true), null);
});
