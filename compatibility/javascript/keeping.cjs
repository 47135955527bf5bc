const assert = require("node:assert/strict");
const { randomBytes } = require("node:crypto");
const { collect, createSandbox, e2b, made, probe } = require("./harness.cjs");

const { Sandbox, Secret, Volume } = e2b;
const fresh = () => `probe-${randomBytes(4).toString("hex")}`;

probe(["Sandbox.createSnapshot"], async () => {
  const sandbox = await createSandbox();
  await sandbox.files.write("kept.txt", "kept");
  const { snapshotId } = await sandbox.createSnapshot();
  const copy = await createSandbox(snapshotId);
  assert.equal(await copy.files.read("kept.txt"), "kept");
});

probe(["Sandbox.listSnapshots", "SnapshotPaginator.nextItems"], async () => {
  const sandbox = await createSandbox();
  const { snapshotId } = await sandbox.createSnapshot();
  const found = await collect(sandbox.listSnapshots());
  assert.deepEqual(found.map((one) => one.snapshotId), [snapshotId]);
});

probe(["Sandbox.deleteSnapshot"], async () => {
  const sandbox = await createSandbox();
  const { snapshotId } = await sandbox.createSnapshot();
  assert.equal(await Sandbox.deleteSnapshot(snapshotId), true);
  assert.equal(await Sandbox.deleteSnapshot(snapshotId), false);
});

probe(["Sandbox.fork"], async () => {
  const sandbox = await createSandbox();
  await sandbox.files.write("shared.txt", "shared");
  const forks = await sandbox.fork({ count: 2 });
  made.push(...forks);
  for (const fork of forks) assert.equal(await fork.files.read("shared.txt"), "shared");
});

const VOLUMES = ["create", "connect", "destroy", "list", "getInfo"].map((one) => `Volume.${one}`);

probe(VOLUMES, async () => {
  const volume = await Volume.create(fresh());
  assert.equal((await Volume.connect(volume.volumeId)).name, volume.name);
  assert.equal((await Volume.getInfo(volume.volumeId)).volumeId, volume.volumeId);
  assert.ok((await Volume.list()).some((one) => one.volumeId === volume.volumeId));
  assert.equal(await Volume.destroy(volume.volumeId), true);
});

const CONTENT = ["writeFile", "readFile", "exists", "remove"].map((one) => `Volume.${one}`);

probe(CONTENT, async () => {
  const volume = await Volume.create(fresh());
  await volume.writeFile("/note", "kept");
  const sandbox = await createSandbox({ volumeMounts: { "/mnt/data": volume } });
  assert.equal(await sandbox.files.read("/mnt/data/note"), "kept");
  assert.equal(await volume.readFile("/note"), "kept");
  await volume.remove("/note");
  assert.equal(await volume.exists("/note"), false);
  await sandbox.kill();
  await Volume.destroy(volume.volumeId);
});

probe(["Volume.makeDir", "Volume.updateMetadata"], async () => {
  const volume = await Volume.create(fresh());
  await volume.makeDir("/below");
  const changed = await volume.updateMetadata("/below", { mode: 0o700 });
  assert.equal(changed.mode & 0o777, 0o700);
  await Volume.destroy(volume.volumeId);
});

for (const [method, ...given] of [
  ["create", "name", "value"], ["getInfo", "name"], ["update", "name", "value"], ["exists", "name"],
  ["destroy", "name"],
]) {
  probe([`Secret.${method}`], () => Secret[method](...given));
}

probe(["Secret.list", "SecretPaginator.nextItems"], () => collect(Secret.list()));

probe(["Secret.fill"], async () => {
  const transform = { headers: { X: Secret.fill("name") } };
  await createSandbox({ network: { rules: { "example.org": [{ transform }] } } });
});

probe(["Secret.iamToken"], async () => {
  const token = Secret.iamToken({ audience: "example.org", tokenType: "JWT-SVID" });
  await createSandbox({ iam: { tokens: { t: token } } });
});
