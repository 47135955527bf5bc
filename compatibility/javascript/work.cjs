const assert = require("node:assert/strict");
const { randomBytes } = require("node:crypto");
const { probe, createSandbox, sharedSandbox } = require("./harness.cjs");

const fresh = () => `/home/user/${randomBytes(4).toString("hex")}`;

/** Gives the shared sandbox's files and a directory of the probe's own. */
async function place() {
  const { files } = await sharedSandbox();
  const directory = fresh();
  await files.makeDir(directory);
  return { files, directory };
}

probe(["files.write", "files.read"], async () => {
  const { files, directory } = await place();
  await files.write(`${directory}/text`, "grüße");
  assert.equal(await files.read(`${directory}/text`), "grüße");
});

probe(["files.writeFiles"], async () => {
  const { files, directory } = await place();
  const given = ["a", "b"].map((name) => ({ path: `${directory}/${name}`, data: name }));
  await files.writeFiles(given);
  assert.equal(await files.read(`${directory}/b`), "b");
});

probe(["files.exists", "files.remove"], async () => {
  const { files, directory } = await place();
  assert.ok(await files.exists(directory));
  await files.remove(directory);
  assert.ok(!(await files.exists(directory)));
});

probe(["files.list", "files.makeDir"], async () => {
  const { files, directory } = await place();
  await files.makeDir(`${directory}/below/it`);
  assert.deepEqual((await files.list(directory)).map((one) => one.name), ["below"]);
});

probe(["files.getInfo"], async () => {
  const { files, directory } = await place();
  await files.write(`${directory}/five`, "12345");
  const { name, size, owner } = await files.getInfo(`${directory}/five`);
  assert.deepEqual([name, size, owner], ["five", 5, "user"]);
});

probe(["files.rename"], async () => {
  const { files, directory } = await place();
  await files.write(`${directory}/old`, "x");
  await files.rename(`${directory}/old`, `${directory}/new`);
  assert.deepEqual((await files.list(directory)).map((one) => one.name), ["new"]);
});

probe(["files.watchDir"], async () => {
  const { files, directory } = await place();
  let handle;
  await new Promise((resolve, reject) => {
    files.watchDir(directory, resolve).then((watching) => {
      handle = watching;
      return files.write(`${directory}/new`, "x");
    }).catch(reject);
  });
  await handle.stop();
});

async function cat() {
  const { commands } = await sharedSandbox();
  return { commands, command: await commands.run("cat", { background: true, stdin: true }) };
}

const pids = async (commands) => (await commands.list()).map((one) => one.pid);

probe(["commands.run"], async () => {
  const { commands } = await sharedSandbox();
  const { stdout, stderr, exitCode } = await commands.run("echo out; echo err >&2");
  assert.deepEqual([stdout, stderr, exitCode], ["out\n", "err\n", 0]);
});

probe(["commands.list"], async () => {
  const { commands, command } = await cat();
  assert.ok((await pids(commands)).includes(command.pid));
  await command.kill();
});

probe(["commands.kill"], async () => {
  const { commands, command } = await cat();
  assert.ok(await commands.kill(command.pid));
});

probe(["commands.connect"], async () => {
  const { commands } = await sharedSandbox();
  const command = await commands.run("sleep 2; echo late", { background: true });
  const again = await commands.connect(command.pid);
  assert.equal((await again.wait()).stdout, "late\n");
});

probe(["commands.sendStdin", "commands.closeStdin"], async () => {
  const { commands, command } = await cat();
  await commands.sendStdin(command.pid, "typed\n");
  if (!commands.closeStdin) {
    await command.kill();
    return;
  }
  await commands.closeStdin(command.pid);
  assert.equal((await command.wait()).stdout, "typed\n");
});

/** Opens a terminal; `shows` waits until it has shown a text. */
async function terminal() {
  const { pty } = await sharedSandbox();
  const screen = watched();
  const handle = await pty.create({ cols: 80, rows: 24, onData: screen.add });
  return { pty, handle, ...screen };
}

function watched() {
  let text = "";
  const waiting = [];
  return {
    add: (data) => {
      text += Buffer.from(data).toString();
      waiting.forEach((check) => check());
    },
    shows: (expected) =>
      new Promise((resolve) => {
        const check = () => text.includes(expected) && resolve();
        waiting.push(check);
        check();
      }),
  };
}

probe(["pty.create", "pty.sendInput"], async () => {
  const { pty, handle, shows } = await terminal();
  await pty.sendInput(handle.pid, Buffer.from("echo $((6*7))\n"));
  await shows("42");
  await pty.kill(handle.pid);
});

probe(["pty.resize"], async () => {
  const { pty, handle, shows } = await terminal();
  await pty.resize(handle.pid, { cols: 133, rows: 50 });
  await pty.sendInput(handle.pid, Buffer.from("stty size\n"));
  await shows("50 133");
  await pty.kill(handle.pid);
});

probe(["pty.kill"], async () => {
  const { pty, handle } = await terminal();
  assert.ok(await pty.kill(handle.pid));
});

probe(["pty.connect"], async () => {
  const { pty, handle } = await terminal();
  const screen = watched();
  await pty.connect(handle.pid, { onData: screen.add });
  await pty.sendInput(handle.pid, Buffer.from("echo $((6*7))\n"));
  await screen.shows("42");
  await pty.kill(handle.pid);
});

const WHO = { authorName: "A", authorEmail: "a@example.org" };

/** Makes a repository with one commit. */
async function repository() {
  const sandbox = await sharedSandbox();
  const path = fresh();
  await sandbox.git.init(path, { initialBranch: "main" });
  await sandbox.files.write(`${path}/file`, "first");
  await sandbox.git.add(path);
  await sandbox.git.commit(path, "change", WHO);
  return { ...sandbox, git: sandbox.git, files: sandbox.files, commands: sandbox.commands, path };
}

probe(["git.init", "git.add", "git.commit", "git.status"], async () => {
  const { files, git, path } = await repository();
  await files.write(`${path}/other`, "x");
  assert.deepEqual((await git.status(path)).fileStatus.map((one) => one.name), ["other"]);
});

probe(["git.branches", "git.createBranch", "git.checkoutBranch", "git.deleteBranch"], async () => {
  const { git, path } = await repository();
  await git.createBranch(path, "side");
  await git.checkoutBranch(path, "main");
  assert.deepEqual((await git.branches(path)).branches.toSorted(), ["main", "side"]);
  await git.deleteBranch(path, "side");
  assert.deepEqual((await git.branches(path)).branches, ["main"]);
});

probe(["git.clone", "git.push", "git.pull", "git.remoteAdd", "git.remoteGet"], async () => {
  const { commands, files, git, path } = await repository();
  const [bare, copy] = [`${path}.git`, `${path}-copy`];
  await commands.run(`git clone -q --bare ${path} ${bare}`);
  await git.clone(`file://${bare}`, { path: copy });
  await files.write(`${copy}/file`, "second");
  await git.add(copy);
  await git.commit(copy, "change", WHO);
  await git.push(copy, { remote: "origin", branch: "main" });
  await git.remoteAdd(path, "origin", `file://${bare}`);
  if (git.remoteGet) assert.equal(await git.remoteGet(path, "origin"), `file://${bare}`);
  await git.pull(path, { remote: "origin", branch: "main" });
  assert.equal(await files.read(`${path}/file`), "second");
});

probe(["git.reset", "git.restore"], async () => {
  const { files, git, path } = await repository();
  await files.write(`${path}/file`, "changed");
  await git.restore(path, { paths: ["file"] });
  assert.equal(await files.read(`${path}/file`), "first");
  await files.write(`${path}/file`, "changed");
  await git.reset(path, { mode: "hard" });
  assert.equal(await files.read(`${path}/file`), "first");
});

probe(["git.setConfig", "git.getConfig", "git.configureUser"], async () => {
  const { git } = await sharedSandbox();
  await git.setConfig("pull.rebase", "true");
  assert.equal(await git.getConfig("pull.rebase"), "true");
  await git.configureUser("Ada", "ada@example.org");
  assert.equal(await git.getConfig("user.name"), "Ada");
});

probe(["git.dangerouslyAuthenticate"], async () => {
  const { commands, git } = await createSandbox();
  await git.dangerouslyAuthenticate({ username: "ada", password: "secret", host: "example.org" });
  const kept = await commands.run("cat ~/.git-credentials");
  assert.ok(kept.stdout.includes("ada:secret@example.org"));
});
