// Finds every public method of the installed SDK.
const { e2b } = require("./harness.cjs");

const CLASSES = [
  "Sandbox", "Template", "Volume", "Secret", "SandboxPaginator", "SnapshotPaginator",
  "SecretPaginator",
];
const PARTS = ["files", "commands", "pty", "git"];

// Private in TypeScript, which leaves no trace at run time.
const PRIVATE = new Set([
  "constructor", "updatePagination", "hasNext", "nextToken", "resolveOpts", "resolveApiOpts",
  "fileUrl", "createSandbox", "connectSandbox", "forkSandbox", "getFullInfo", "collectStackTrace",
  "instructionsWithHashes", "serialize", "runGit", "runShell", "getRemoteUrl",
  "resolveRemoteName", "withRemoteCredentials", "hasUpstream", "start", "supportsStdinClose",
  "disableStackTrace", "enableStackTrace", "runInNewStackTraceContext",
  "runInStackTraceOverrideContext", "handleResponse", "listSandboxes", "timeoutToSeconds", "length", "name", "prototype",
]);

function publicMethods() {
  const found = new Set();
  for (const name of CLASSES) {
    for (let one = e2b[name]; one?.name; one = Object.getPrototypeOf(one)) {
      add(found, name, one);
      add(found, name, one.prototype ?? {});
    }
  }
  const builder = e2b.Template?.();
  for (let one = builder; one && one !== Object.prototype; one = Object.getPrototypeOf(one)) {
    add(found, "Template", one);
  }
  const sandbox = new e2b.Sandbox({
    sandboxId: "none", envdVersion: "0.6.0", envdAccessToken: "none",
  });
  for (const part of PARTS) {
    if (sandbox[part]) add(found, part, Object.getPrototypeOf(sandbox[part]));
  }
  return [...found].sort();
}

function add(found, name, holder) {
  for (const [method, { value }] of Object.entries(Object.getOwnPropertyDescriptors(holder))) {
    const isPublic = typeof value === "function" && !PRIVATE.has(method) && !method.startsWith("_");
    if (isPublic) found.add(`${name}.${method}`);
  }
}

module.exports = { publicMethods };
