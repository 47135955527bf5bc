// Volumes and secrets with E2B's own client for JavaScript, unmodified.
const assert = require("node:assert/strict");
const { after, before, test } = require("node:test");
const { Sandbox, Secret, SecretError, Volume, VolumeError } = require("e2b");

const name = `js-${Math.random().toString(36).slice(2)}`;
let volume;

before(async () => {
  volume = await Volume.create(name);
});

after(async () => {
  assert.ok(await Volume.destroy(volume.volumeId));
  assert.equal(await Volume.destroy(volume.volumeId), false);
});

test("a volume is found by its id and in the list", async () => {
  assert.equal((await Volume.getInfo(volume.volumeId)).name, name);
  assert.ok((await Volume.list()).some((one) => one.volumeId === volume.volumeId));
  assert.equal((await Volume.connect(volume.volumeId)).token, volume.token);
  await assert.rejects(Volume.connect("missing"), /not found/);
  await assert.rejects(Volume.create(name), VolumeError);
});

test("files are written and read in every form", async () => {
  const bytes = new Uint8Array(3_000_000).map((_, at) => at * 7);
  await volume.makeDir("/box/deep", { force: true });
  await volume.writeFile("/box/text", "text \u2603", { uid: 1001, gid: 1002, mode: 0o640 });
  await volume.writeFile("/box/bytes", bytes.buffer);
  await volume.writeFile("/box/blob", new Blob(["a blob"]));
  await volume.writeFile("/box/stream", new Blob([bytes]).stream());
  assert.equal(await volume.readFile("/box/text"), "text \u2603");
  assert.deepEqual(await volume.readFile("/box/bytes", { format: "bytes" }), bytes);
  assert.equal(await (await volume.readFile("/box/blob", { format: "blob" })).text(), "a blob");
  const chunks = [];
  for await (const chunk of await volume.readFile("/box/stream", { format: "stream" })) {
    chunks.push(chunk);
  }
  assert.deepEqual(new Uint8Array(Buffer.concat(chunks)), bytes);
  const info = await volume.getInfo("/box/text");
  assert.deepEqual([info.type, info.uid, info.gid, info.mode], ["file", 1001, 1002, 0o640]);
  assert.equal((await volume.updateMetadata("/box/text", { mode: 0o600 })).mode, 0o600);
  const listed = await volume.list("/box");
  assert.deepEqual(listed.map((one) => one.name), ["blob", "bytes", "deep", "stream", "text"]);
  await volume.remove("/box");
  assert.equal(await volume.exists("/box/text"), false);
  await assert.rejects(volume.readFile("/box/text"), /not found/);
});

test("a sandbox has it mounted", async () => {
  const sandbox = await Sandbox.create({
    timeoutMs: 120_000, volumeMounts: { "/mnt/data": volume, "/mnt/again": name },
  });
  await sandbox.commands.run("echo from the sandbox > /mnt/data/file");
  assert.equal(await volume.readFile("/file"), "from the sandbox\n");
  assert.equal(await sandbox.files.read("/mnt/again/file"), "from the sandbox\n");
  await sandbox.kill();
});

// Older clients have no secrets.
test("secrets are refused: nothing in a sandbox could use them", { skip: Secret === undefined }, async () => {
  const refused = { name: SecretError.name, message: /501.*Storing secrets is not implemented/ };
  await assert.rejects(Secret.create(name, "value"), refused);
  await assert.rejects(Secret.getInfo(name), refused);
});
