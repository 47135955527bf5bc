import assert from "node:assert/strict";
import { test } from "node:test";
import { pieces, plain } from "./ansi.ts";

test("colours and attributes become classes until they are reset", () => {
  assert.deepEqual(pieces("a \x1b[1;31mred\x1b[0m b"), [
    { text: "a ", look: "" },
    { text: "red", look: "ansi-red font-bold" },
    { text: " b", look: "" },
  ]);
});

test("bright, 256 and 24-bit colours do not spill over", () => {
  assert.deepEqual(pieces("\x1b[92mok\x1b[39m\x1b[38;5;196mx\x1b[38;2;1;31;3my"), [
    { text: "ok", look: "ansi-green" },
    { text: "x", look: "" },
    { text: "y", look: "" },
  ]);
});

test("cursor movements, titles, links and control characters are removed", () => {
  assert.equal(plain("\x1b[2K\x1b]0;title\x07a\x1b]8;;http://x\x1b\\b\x1b]8;;\x1b\\\x00c"), "abc");
});

test("a carriage return restarts the line", () => {
  assert.equal(plain("10 %\r20 %\r"), "20 %");
});

test("an unfinished title swallows no markup", () => {
  assert.deepEqual(pieces("x\x1b]0;never ends"), [{ text: "x", look: "" }]);
});
