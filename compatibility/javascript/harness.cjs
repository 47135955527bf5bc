// Runs with one version of E2B's SDK; knows nothing of this project.
const e2b = require("e2b");

const NOT_IMPLEMENTED = "is not implemented by this engine";
const NO_TOKEN = "unauthorized access, please provide a valid access token";
const probes = new Map();
let made = [];
let shared;

/** What the SDK sends is understood; what it needs is not at hand. */
class Unreachable extends Error {}

/** Has a function show whether these methods work: `Class.method`. */
function probe(methods, run) {
  for (const method of methods) probes.set(method, run);
}

/** Creates a sandbox that is killed after the probe. */
async function createSandbox(...given) {
  const options = typeof given.at(-1) === "object" ? given.pop() : {};
  const sandbox = await e2b.Sandbox.create(...given, { timeoutMs: 300_000, ...options });
  made.push(sandbox);
  return sandbox;
}

/** Gets the sandbox for what leaves no traces. */
async function sharedSandbox() {
  shared ??= await e2b.Sandbox.create({ timeoutMs: 900_000 });
  return shared;
}

async function collect(pages) {
  const found = [];
  while (pages.hasNext) found.push(...(await pages.nextItems()));
  return found;
}

async function runAll(methods) {
  const known = new Map();
  for (const method of methods) {
    const run = probes.get(method);
    if (run && !known.has(run)) known.set(run, await judge(run));
    const [verdict, detail] = run ? known.get(run) : ["no probe", ""];
    console.log(JSON.stringify({ method, verdict, detail }));
  }
  await shared?.kill();
}

async function judge(run) {
  try {
    await run();
    return ["works", ""];
  } catch (error) {
    const text = String(error?.message ?? error);
    if (text.includes(NOT_IMPLEMENTED)) return ["not implemented", text];
    if (error instanceof Unreachable) return ["unreachable", text];
    if (text.includes(NO_TOKEN)) return ["without token", text];
    return ["fails", String(error?.stack ?? error)];
  } finally {
    await Promise.allSettled(made.map((sandbox) => sandbox.kill()));
    made = [];
  }
}

module.exports = { Unreachable, collect, createSandbox, e2b, made, probe, runAll, sharedSandbox };
