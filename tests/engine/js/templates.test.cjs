// The template builder of E2B's own client for JavaScript, unmodified.
const assert = require("node:assert/strict");
const { randomBytes } = require("node:crypto");
const path = require("node:path");
const { test } = require("node:test");
const { BuildError, Sandbox, Template, waitForPort } = require("e2b");

const fileContextPath = path.join(__dirname, "context");
const name = `js-${randomBytes(6).toString("hex")}`;

test("a template is built from files and packages, and its server runs", async () => {
  const lines = [];
  const template = Template({ fileContextPath })
    .fromTemplate("base")
    .setWorkdir("/home/user/app")
    .copy("package.json", "./")
    .npmInstall("is-number@7.0.0")
    .copyItems([{ src: "server.js", dest: "./" }, { src: "lib", dest: "./lib" }])
    .runCmd("node -p 'require(\"is-number\")(7)' > number")
    .setStartCmd("node server.js", waitForPort(8000));
  const built = await Template.build(template, name, {
    memoryMB: 512, onBuildLogs: (entry) => lines.push(entry.message),
  });
  assert.equal(built.name, name);
  assert.ok(lines.some((line) => line.includes("is-number")), lines.join("\n"));

  const sandbox = await Sandbox.create(name, { timeoutMs: 120_000 });
  try {
    const said = await sandbox.commands.run("curl -s localhost:8000");
    assert.equal(said.stdout, "hello from a template");
    assert.equal(await sandbox.files.read("/home/user/app/number"), "true\n");
  } finally {
    await sandbox.kill();
  }
});

test("a failing command fails the build with what it said", async () => {
  const template = Template().fromTemplate("base").runCmd("echo no such luck >&2; exit 3");
  await assert.rejects(Template.build(template, `${name}-failing`), (error) => {
    assert.ok(error instanceof BuildError);
    assert.match(error.message, /exit status 3/);
    assert.match(error.message, /no such luck/);
    return true;
  });
});

test("names and tags say what there is", async () => {
  assert.equal(await Template.exists(`${name}-nothing`), false);
  assert.equal(await Template.exists(name), true);
  await Template.assignTags(name, ["stable"]);
  const tags = (await Template.getTags(name)).map(({ tag }) => tag);
  assert.deepEqual(tags.sort(), ["default", "stable"]);
  await Template.removeTags(name, ["stable"]);
  assert.equal((await Template.getTags(name)).length, 1);
});
