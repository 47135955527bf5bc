// Snapshots, forks and pauses by E2B's own client for JavaScript, unmodified.
const assert = require("node:assert/strict");
const { after, before, test } = require("node:test");
const { Sandbox } = require("e2b");

let sandbox;

before(async () => {
  sandbox = await Sandbox.create({ timeoutMs: 120_000 });
  await sandbox.files.write("note", "text");
});

after(async () => {
  await sandbox.kill();
});

test("a snapshot is taken, listed, created from and deleted", async () => {
  const name = `js-${sandbox.sandboxId}`;
  const snapshot = await sandbox.createSnapshot({ name });
  assert.deepEqual(snapshot.names, [snapshot.snapshotId]);
  const created = await Sandbox.create(snapshot.snapshotId, { timeoutMs: 60_000 });
  assert.equal(await created.files.read("note"), "text");
  await created.kill();
  const [listed] = await sandbox.listSnapshots().nextItems();
  assert.equal(listed.snapshotId, snapshot.snapshotId);
  assert.ok(await Sandbox.deleteSnapshot(snapshot.snapshotId));
  assert.ok(!(await Sandbox.deleteSnapshot(snapshot.snapshotId)));
});

test("forks have the files of their source", async () => {
  const forks = await sandbox.fork({ count: 2, timeoutMs: 60_000 });
  for (const fork of forks) {
    assert.ok(fork instanceof Sandbox, String(fork));
    assert.equal(await fork.files.read("note"), "text");
    await fork.kill();
  }
});

test("a pause may keep the files alone", async () => {
  await sandbox.commands.run("sleep 1000", { background: true, timeoutMs: 0 });
  assert.ok(await sandbox.pause({ keepMemory: false }));
  await sandbox.connect({ timeoutMs: 60_000 });
  assert.equal(await sandbox.files.read("note"), "text");
  assert.equal((await sandbox.commands.run("pgrep -c sleep || true")).stdout, "0\n");
});
