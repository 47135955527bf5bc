const assert = require("node:assert/strict");
const { randomBytes } = require("node:crypto");
const { mkdtempSync, writeFileSync } = require("node:fs");
const { join } = require("node:path");
const { tmpdir } = require("node:os");
const {
  SdkRefusal, Unreachable, createSandbox, e2b, expectedRefusal, probe,
} = require("./harness.cjs");

const { Template } = e2b;

/** Builds a template and gives its name; older versions call it an alias. */
async function build(template) {
  const alias = `probe-${randomBytes(4).toString("hex")}`;
  await Template.build(template, { alias });
  return alias;
}

async function say(name, command) {
  const sandbox = await createSandbox(name);
  return (await sandbox.commands.run(command)).stdout;
}

/** Has what a sandbox of the template says show whether the methods work. */
function built(methods, command, told, make) {
  const named = methods.map((one) => `Template.${one}`);
  probe(named, async () => assert.equal(await say(await build(make()), command), told));
}

const base = () => Template().fromTemplate("base");

built(["build", "fromBaseImage", "runCmd"], "cat made", "built\n", () =>
  Template().fromBaseImage().runCmd("echo built > made"));
built(["fromTemplate", "setEnvs"], "echo $OF", "template\n", () =>
  base().setEnvs({ OF: "template" }));
built(["skipCache"], "cat made", "new\n", () => base().skipCache().runCmd("echo new > made"));
built(["makeDir"], "ls -d below", "below\n", () => base().makeDir("below"));
built(["makeSymlink"], "readlink link", "/etc\n", () => base().makeSymlink("/etc", "link"));
built(["setWorkdir"], "pwd", "/srv/work\n", () => base().setWorkdir("/srv/work"));
built(["setUser"], "id -un", "root\n", () => base().setUser("root"));
built(["rename"], "cat new", "moved\n", () => base().runCmd("echo moved > old").rename("old", "new"));
built(["remove"], "ls", "", () => base().runCmd("touch gone").remove("gone"));
built(["setStartCmd"], "curl -s localhost:8123/made", "served", () =>
  base().runCmd("echo -n served > made")
    .setStartCmd("python -m http.server 8123", e2b.waitForPort(8123)));
built(["setReadyCmd"], "cat made", "built\n", () =>
  base().runCmd("echo built > made").setReadyCmd("test -e made"));
built(["aptInstall"], "tree --version | head -c4", "tree", () => base().aptInstall(["tree"]));
built(["pipInstall"], "python -c 'import six; print(six.PY3)'", "True\n", () =>
  base().pipInstall(["six"]));
built(["npmInstall"], "ls node_modules", "is-number\n", () => base().npmInstall(["is-number"]));
built(["gitClone"], "ls copy", "file\n", () =>
  base().runCmd(
    "git init -q r && touch r/file && git -C r add . && " +
      "git -C r -c user.name=A -c user.email=a@example.org commit -qm c",
  ).gitClone("file:///home/user/r", "copy"));
built(["copy", "copyItems"], "cat one two", "copiedcopied", () => {
  const fileContextPath = mkdtempSync(join(tmpdir(), "context-"));
  writeFileSync(join(fileContextPath, "file"), "copied");
  return Template({ fileContextPath }).fromTemplate("base").copy("file", "one")
    .copyItems([{ src: "file", dest: "two" }]);
});
built(["fromDockerfile"], "cat /made", "built\n", () =>
  Template().fromDockerfile("FROM debian:12-slim\nRUN echo built > /made\n"));
built(["fromImage"], "id -un", "user\n", () => Template().fromImage(process.env.PROBE_IMAGE));
built(["fromDebianImage"], "id -un", "user\n", () => Template().fromDebianImage("12-slim"));
built(["fromPythonImage"], "id -un", "user\n", () => Template().fromPythonImage("3.11"));
built(["fromNodeImage"], "id -un", "user\n", () => Template().fromNodeImage());

probe(["Template.toJSON"], async () => {
  assert.ok((await Template.toJSON(base().runCmd("echo told"))).includes("echo told"));
});

probe(["Template.toDockerfile"], async () => {
  const template = Template().fromImage("debian:12-slim").runCmd("echo told");
  assert.ok(Template.toDockerfile(template).includes("FROM debian:12-slim"));
});

probe(["Template.buildInBackground", "Template.getBuildStatus"], async () => {
  const alias = `probe-${randomBytes(4).toString("hex")}`;
  const started = await Template.buildInBackground(base().runCmd("true"), { alias });
  const status = await Template.getBuildStatus(started);
  assert.equal(status.buildID ?? status.buildId, started.buildId);
});

probe(["Template.exists", "Template.aliasExists"], async () => {
  const name = await build(base());
  const exists = Template.exists ?? Template.aliasExists;
  assert.equal(await exists.call(Template, name), true);
  assert.equal(await exists.call(Template, "nobody-has-this-name"), false);
});

probe(["Template.assignTags", "Template.removeTags", "Template.getTags"], async () => {
  const name = await build(base());
  await Template.assignTags(`${name}:default`, ["v1"]);
  assert.equal(await say(`${name}:v1`, "echo tagged"), "tagged\n");
  if (Template.getTags) {
    assert.ok((await Template.getTags(name)).some((one) => one.tag === "v1"));
  }
  await Template.removeTags(name, "v1");
  await assert.rejects(createSandbox(`${name}:v1`), /not found|does not exist/);
});

const NO_CONNECTION = "(dial tcp|connection refused|i/o timeout|does not answer)";

/** For what needs an image or a program that is missing: the engine must give this reason. */
function refused(method, reason, make) {
  probe([`Template.${method}`], () =>
    expectedRefusal(reason, Unreachable, async () => {
      assert.equal(await say(await build(make()), "echo built"), "built\n");
    }));
}

for (const kind of ["Alpine", "Arch", "Bun", "Fedora", "Ubuntu"]) {
  const reason = new RegExp(`docker\\.io.*${NO_CONNECTION}`, "s");
  refused(`from${kind}Image`, reason, () => Template()[`from${kind}Image`]());
}
const LOCAL = new RegExp(`localhost:1.*${NO_CONNECTION}`, "s");
refused("fromAWSRegistry", LOCAL, () =>
  Template().fromAWSRegistry("localhost:1/image", {
    accessKeyId: "id", secretAccessKey: "secret", region: "region",
  }));
refused("fromGCPRegistry", LOCAL, () =>
  Template().fromGCPRegistry("localhost:1/image", { serviceAccountJSON: { type: "service_account" } }));
refused("bunInstall", /exit status 127.*bun: .*not found/s, () => base().bunInstall(["is-number"]));

const NO_DEVCONTAINER = /only used in the devcontainer template/;
const OF_ANOTHER_BASE = {
  addMcpServer: /only be added to mcp-gateway template/,
  betaDevContainerPrebuild: NO_DEVCONTAINER,
  betaSetDevContainerStart: NO_DEVCONTAINER,
};

/** For steps that the SDK itself allows on one of E2B's own templates alone. */
for (const [method, reason] of Object.entries(OF_ANOTHER_BASE)) {
  probe([`Template.${method}`], async () => {
    await expectedRefusal(reason, SdkRefusal, async () => base()[method]("/srv"));
    assert.fail("the SDK does not refuse it any more: have the engine build it");
  });
}
