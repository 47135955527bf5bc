// A base that no registry has to be asked for, under the client for JavaScript's own name for it.
const assert = require("node:assert/strict");
const { randomBytes } = require("node:crypto");
const { test } = require("node:test");
const { Sandbox, Template } = require("e2b");

const name = `js-${randomBytes(6).toString("hex")}`;

test("a template is built on a Node.js image", async () => {
  const template = Template().fromNodeImage("24").runCmd("node --version > ~/version");
  await Template.build(template, name);
  const sandbox = await Sandbox.create(name, { timeoutMs: 120_000 });
  try {
    assert.match(await sandbox.files.read("version"), /^v24\./);
  } finally {
    await sandbox.kill();
  }
});
