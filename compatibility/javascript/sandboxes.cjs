const assert = require("node:assert/strict");
const { collect, createSandbox, e2b, probe, sharedSandbox } = require("./harness.cjs");

const { Sandbox } = e2b;

probe(["Sandbox.create"], async () => {
  const sandbox = await createSandbox({ envs: { GREETING: "hello" }, metadata: { of: "probe" } });
  const said = await sandbox.commands.run("echo $GREETING from $(id -un)");
  assert.equal(said.stdout, "hello from user\n");
});

probe(["Sandbox.connect"], async () => {
  const first = await createSandbox();
  const second = await Sandbox.connect(first.sandboxId);
  assert.equal((await second.commands.run("echo again")).stdout, "again\n");
});

probe(["Sandbox.kill"], async () => {
  const sandbox = await createSandbox();
  await sandbox.kill();
  assert.equal(await Sandbox.kill(sandbox.sandboxId), false);
});

probe(["Sandbox.list", "SandboxPaginator.nextItems"], async () => {
  const sandbox = await createSandbox();
  const listed = await Sandbox.list();
  const found = Array.isArray(listed) ? listed : await collect(listed);
  assert.ok(found.some((one) => one.sandboxId === sandbox.sandboxId));
});

probe(["Sandbox.getInfo"], async () => {
  const sandbox = await createSandbox({ metadata: { probe: "info" } });
  const info = await (sandbox.getInfo ? sandbox.getInfo() : Sandbox.getInfo(sandbox.sandboxId));
  assert.deepEqual([info.sandboxId, info.metadata], [sandbox.sandboxId, { probe: "info" }]);
});

probe(["Sandbox.getMetrics"], async () => {
  const newest = (await (await sharedSandbox()).getMetrics()).at(-1);
  assert.equal(newest.cpuCount, 2);
  assert.ok(newest.memUsed > 0 || newest.memUsedMiB > 0);
});

probe(["Sandbox.setTimeout"], async () => {
  const sandbox = await createSandbox();
  await sandbox.setTimeout(3_000_000);
  const { endAt } = await sandbox.getInfo();
  assert.ok(new Date(endAt).getTime() > Date.now() + 2_000_000);
});

probe(["Sandbox.isRunning"], async () => {
  const sandbox = await createSandbox();
  assert.ok(await sandbox.isRunning());
  await sandbox.kill();
  assert.ok(!(await sandbox.isRunning()));
});

for (const method of ["pause", "betaPause"]) {
  probe([`Sandbox.${method}`], async () => {
    const sandbox = await createSandbox();
    const command = await sandbox.commands.run("sleep 600", { background: true });
    await sandbox[method]();
    const resumed = await Sandbox.connect(sandbox.sandboxId);
    const pids = (await resumed.commands.list()).map((one) => one.pid);
    assert.ok(pids.includes(command.pid));
  });
}

probe(["Sandbox.betaCreate"], async () => {
  const sandbox = await Sandbox.betaCreate({ timeoutMs: 300_000, autoPause: true });
  assert.equal((await sandbox.commands.run("echo made")).stdout, "made\n");
  await sandbox.kill();
});

probe(["Sandbox.getHost"], async () => {
  const sandbox = await sharedSandbox();
  assert.ok(sandbox.getHost(3000).startsWith(`3000-${sandbox.sandboxId}`));
});

probe(["Sandbox.downloadUrl", "Sandbox.uploadUrl"], async () => {
  const sandbox = await sharedSandbox();
  const form = new FormData();
  form.set("file", new Blob(["by URL"]), "x");
  const upload = await fetch(await sandbox.uploadUrl("signed.txt"), { method: "POST", body: form });
  assert.ok(upload.ok, await upload.text());
  const download = await fetch(await sandbox.downloadUrl("signed.txt"));
  assert.equal(await download.text(), "by URL");
});

probe(["Sandbox.getMcpUrl"], async () => {
  const sandbox = await sharedSandbox();
  assert.ok(sandbox.getMcpUrl().includes(sandbox.sandboxId));
});

probe(["Sandbox.getMcpToken"], async () => {
  const sandbox = await sharedSandbox();
  await sandbox.files.write("/etc/mcp-gateway/.token", "token", { user: "root" });
  assert.equal(await sandbox.getMcpToken(), "token");
});

probe(["Sandbox.updateNetwork"], async () => {
  const sandbox = await createSandbox();
  await sandbox.updateNetwork({ denyOut: ["0.0.0.0/0"] });
  const info = await sandbox.getInfo();
  assert.deepEqual(info.network.denyOut, ["0.0.0.0/0"]);
});
