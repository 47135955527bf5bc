// Runs with one version of E2B's SDK; knows nothing of this project.
const { AssertionError } = require("node:assert");
const e2b = require("e2b");

const NOT_IMPLEMENTED = /\b501: .+ is not implemented by this engine/s;
const NO_TOKEN = "unauthorized access, please provide a valid access token";
const BUGS = [TypeError, ReferenceError, RangeError];
const probes = new Map();
let made = [];
let shared;

/** The engine understood the request and reported that an image or a program is missing. */
class Unreachable extends Error {}

/** The SDK refused the call itself; the engine received no request. */
class SdkRefusal extends Error {}

/** Turns a BuildError whose text matches `reason` into the finding; all others pass. */
async function expectedRefusal(reason, Finding, run) {
  try {
    await run();
  } catch (error) {
    if (error instanceof e2b.BuildError && reason.test(error.message)) {
      throw new Finding(error.message);
    }
    throw error;
  }
}

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
    return verdictOf(error);
  } finally {
    await Promise.allSettled(made.map((sandbox) => sandbox.kill()));
    made = [];
  }
}

/** Judges what ended a probe: only an expected refusal is anything but a failure. */
function verdictOf(error) {
  const text = String(error?.message ?? error);
  if (error instanceof Unreachable) return ["unreachable", text];
  if (error instanceof SdkRefusal) return ["refused by the SDK", text];
  const isOfTheSdk = !(error instanceof AssertionError || BUGS.some((Bug) => error instanceof Bug));
  if (isOfTheSdk && NOT_IMPLEMENTED.test(text)) return ["not implemented", text];
  if (isOfTheSdk && text.includes(NO_TOKEN)) return ["without token", text];
  return ["fails", String(error?.stack ?? error)];
}

module.exports = {
  SdkRefusal, Unreachable, collect, createSandbox, e2b, expectedRefusal, made, probe, runAll,
  sharedSandbox, verdictOf,
};
