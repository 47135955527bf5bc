import assert from "node:assert/strict";
import { test } from "node:test";
import type { Sandbox } from "../api/client.ts";
import { matcher, toggleState } from "./filter.ts";

const box = (fields: Partial<Sandbox>): Sandbox =>
  ({
    id: "0abc",
    state: "running",
    template: "agent",
    backend: "engine",
    user_id: null,
    session_id: null,
    agent_type: null,
    metadata: {},
    ...fields,
  }) as Sandbox;

test("an empty query matches what has not ended", () => {
  assert.equal(matcher("")(box({})), true);
  assert.equal(matcher("")(box({ state: "failed" })), false);
});

test("ended sandboxes match a query that names their state", () => {
  assert.equal(matcher("state:failed")(box({ state: "failed" })), true);
  assert.equal(matcher("state:failed")(box({})), false);
});

test("a field takes several values, and a minus excludes", () => {
  const query = matcher("state:running,paused -template:base");
  assert.equal(query(box({ state: "paused" })), true);
  assert.equal(query(box({ state: "queued" })), false);
  assert.equal(query(box({ template: "base" })), false);
});

test("words are found in every text, in metadata too", () => {
  assert.equal(matcher("BLUE")(box({ metadata: { team: "blue" } })), true);
  assert.equal(matcher("team:blue")(box({ metadata: { team: "blue" } })), true);
  assert.equal(matcher("team:red")(box({ metadata: { team: "blue" } })), false);
  assert.equal(matcher('user:"ada l"')(box({ user_id: "Ada Lovelace" })), true);
});

test("a state is toggled without the rest of the query", () => {
  assert.equal(toggleState("web", "paused"), "web state:paused");
  assert.equal(toggleState("web state:paused", "paused"), "web");
  assert.equal(toggleState("state:running web", "paused"), "web state:paused");
});
