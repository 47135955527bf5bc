// Network policies as E2B's own client for JavaScript asks for them.
const assert = require("node:assert/strict");
const { after, before, test } = require("node:test");
const { ALL_TRAFFIC, CommandExitError, Sandbox } = require("e2b");

let sandbox;

before(async () => {
  sandbox = await Sandbox.create({
    timeoutMs: 120_000,
    network: {
      allowOut: ["api.example.com", "192.0.2.0/24"],
      denyOut: [ALL_TRAFFIC],
      allowPublicTraffic: false,
      maskRequestHost: "${PORT}.example.org",
    },
  });
});

after(async () => {
  await sandbox.kill();
});

function call(port, headers) {
  const routed = { "E2b-Sandbox-Id": sandbox.sandboxId, "E2b-Sandbox-Port": `${port}` };
  return fetch(process.env.E2B_SANDBOX_URL, { headers: { ...routed, ...headers } });
}

const dial = (address) => sandbox.commands.run(`timeout 30 bash -c '</dev/tcp/${address}/80'`);

const refuses = (address) => assert.rejects(
  dial(address),
  (error) => error instanceof CommandExitError && error.stderr.includes("Connection refused"),
);

test("a policy is shown as it was asked for, and holds", async () => {
  const { network } = await sandbox.getInfo();
  assert.deepEqual(network.allowOut, ["api.example.com", "192.0.2.0/24"]);
  assert.deepEqual(network.denyOut, [ALL_TRAFFIC]);
  await refuses("198.51.100.1");
});

test("an update replaces what may be reached and leaves the ports as they are", async () => {
  await sandbox.updateNetwork({ denyOut: ["203.0.113.0/24"] });
  const { network } = await sandbox.getInfo();
  assert.equal(network.allowOut, undefined);
  assert.deepEqual(network.denyOut, ["203.0.113.0/24"]);
  assert.equal(network.allowPublicTraffic, false);
  await refuses("203.0.113.1");
});

test("ports answer who has the token, under the masked host", async () => {
  const serve = "import http.server as h\n"
    + "class H(h.BaseHTTPRequestHandler):\n"
    + "  def do_GET(self):\n"
    + "    self.send_response(200); self.end_headers(); self.wfile.write(self.headers['Host'].encode())\n"
    + "h.HTTPServer(('', 8000), H).serve_forever()\n";
  await sandbox.files.write("serve.py", serve);
  await sandbox.commands.run("python3 serve.py", { background: true, timeoutMs: 0 });
  await sandbox.commands.run("until ss -Hltn | grep -q ':8000 '; do sleep 0.05; done");
  assert.equal((await call(8000, {})).status, 403);
  const answer = await call(8000, { "E2B-Traffic-Access-Token": sandbox.trafficAccessToken });
  assert.equal(answer.status, 200);
  assert.equal(await answer.text(), "8000.example.org");
});
