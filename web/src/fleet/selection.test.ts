import assert from "node:assert/strict";
import { test } from "node:test";
import { between } from "./selection.ts";

test("a range has both of its ends in either direction", () => {
  assert.deepEqual(between(["a", "b", "c", "d"], "b", "d"), ["b", "c", "d"]);
  assert.deepEqual(between(["a", "b", "c", "d"], "c", "a"), ["a", "b", "c"]);
});

test("a row that is gone has no range", () => {
  assert.deepEqual(between(["a", "b"], "x", "b"), []);
});
