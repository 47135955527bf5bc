// E2B's own client for JavaScript, unmodified; where the engine is stands in the environment.
const assert = require("node:assert/strict");
const { after, before, test } = require("node:test");
const {
  AuthenticationError, CommandExitError, FileNotFoundError, Sandbox, SandboxNotFoundError,
} = require("e2b");

let sandbox;

before(async () => {
  sandbox = await Sandbox.create({
    timeoutMs: 120_000, metadata: { from: "js" }, envs: { GREETING: "hello" },
  });
});

after(async () => {
  await sandbox.kill();
});

/** Collects text until it holds what is waited for. */
class Heard {
  text = "";
  waiting = [];

  add = (data) => {
    this.text += typeof data === "string" ? data : Buffer.from(data).toString();
    this.waiting.forEach((check) => check());
  };

  until(expected) {
    return new Promise((resolve) => {
      const check = () => this.text.includes(expected) && resolve();
      this.waiting.push(check);
      check();
    });
  }
}

test("a sandbox knows what it was created with", async () => {
  const info = await sandbox.getInfo();
  assert.equal(info.sandboxId, sandbox.sandboxId);
  assert.deepEqual(info.metadata, { from: "js" });
  const page = await Sandbox.list({ query: { metadata: { from: "js" } } }).nextItems();
  assert.ok(page.some((one) => one.sandboxId === sandbox.sandboxId));
  assert.ok(await sandbox.isRunning());
});

test("commands run, stream, take input and tell how they ended", async () => {
  const said = await sandbox.commands.run("echo $GREETING from $(id -un)");
  assert.equal(said.stdout, "hello from user\n");
  await assert.rejects(
    sandbox.commands.run("echo no >&2; exit 3"),
    (error) => error instanceof CommandExitError && error.exitCode === 3 && error.stderr === "no\n",
  );
  const heard = new Heard();
  const command = await sandbox.commands.run("cat; echo end", {
    background: true, stdin: true, onStdout: heard.add,
  });
  await sandbox.commands.sendStdin(command.pid, "typed\n");
  await heard.until("typed\n");
  assert.ok((await sandbox.commands.list()).some((one) => one.pid === command.pid));
  assert.ok(await sandbox.commands.kill(command.pid));
  await assert.rejects(command.wait(), CommandExitError);
});

test("a terminal is typed into, resized and killed", async () => {
  const heard = new Heard();
  const terminal = await sandbox.pty.create({ rows: 24, cols: 80, onData: heard.add });
  await sandbox.pty.resize(terminal.pid, { rows: 31, cols: 97 });
  await sandbox.pty.sendInput(terminal.pid, Buffer.from("echo size $(stty size)\n"));
  await heard.until("size 31 97");
  assert.ok(await sandbox.pty.kill(terminal.pid));
});

test("files are written, read, listed, watched and removed", async () => {
  const bytes = new Uint8Array(3_000_000).map((_, at) => at * 7);
  await sandbox.files.makeDir("box");
  const heard = new Heard();
  const watch = await sandbox.files.watchDir("box", (event) => heard.add(`${event.type} ${event.name};`));
  await sandbox.files.write("box/text", "text \u2603");
  await sandbox.files.write("box/bytes", bytes.buffer);
  await heard.until("create text;");
  await heard.until("create bytes;");
  await watch.stop();
  assert.equal(await sandbox.files.read("box/text"), "text \u2603");
  assert.deepEqual(await sandbox.files.read("box/bytes", { format: "bytes" }), bytes);
  const listed = await sandbox.files.list("box");
  assert.deepEqual(listed.map((one) => [one.name, one.type]), [["bytes", "file"], ["text", "file"]]);
  assert.equal((await sandbox.files.getInfo("box/bytes")).size, bytes.length);
  await sandbox.files.rename("box/text", "box/renamed");
  assert.ok(await sandbox.files.exists("box/renamed"));
  await sandbox.files.remove("box");
  await assert.rejects(sandbox.files.read("box/renamed"), FileNotFoundError);
});

test("signed addresses work without the client", async () => {
  const upload = await sandbox.uploadUrl("signed", { useSignatureExpiration: 60 });
  const form = new FormData();
  form.append("file", new Blob(["by address"]), "signed");
  assert.equal((await fetch(upload, { method: "POST", body: form })).status, 200);
  const download = await sandbox.downloadUrl("signed", { useSignatureExpiration: 60 });
  assert.equal(await (await fetch(download)).text(), "by address");
  assert.equal((await fetch(download.replace("signed", "other"))).ok, false);
});

test("pause keeps what runs, and connect goes on with it", async () => {
  const command = await sandbox.commands.run("sleep 1000", { background: true, timeoutMs: 0 });
  assert.ok(await sandbox.pause());
  assert.equal(await sandbox.isRunning(), false);
  const again = await Sandbox.connect(sandbox.sandboxId, { timeoutMs: 60_000 });
  assert.ok((await again.commands.list()).some((one) => one.pid === command.pid));
});

test("a call wakes a paused sandbox whose lifecycle says so", async () => {
  const lifecycle = { onTimeout: "pause", autoResume: true };
  const sleeper = await Sandbox.create({ timeoutMs: 120_000, lifecycle });
  try {
    await sleeper.pause();
    assert.equal((await sleeper.commands.run("echo awake")).stdout, "awake\n");
  } finally {
    await sleeper.kill();
  }
});

test("what is wrong is said by the client's own errors", async () => {
  await assert.rejects(Sandbox.create({ apiKey: `e2b_${"0".repeat(40)}` }), AuthenticationError);
  await assert.rejects(Sandbox.connect("i0000000000000000000"), SandboxNotFoundError);
  const killed = await Sandbox.create({ timeoutMs: 60_000 });
  assert.ok(await killed.kill());
  assert.equal(await killed.kill(), false);
  assert.equal(await killed.isRunning(), false);
});
