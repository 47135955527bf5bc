// Emulated GitHubs for tests, each with its own data and its own port, in one Node.js for all tests of a run.
//
// argv: the module `emulate`. Prints {"port"} of a control server: POST / with a seed makes a GitHub, DELETE /{port} ends it.
// What `emulate` does differently from GitHub is mended by the front in github_front.mjs.
import { createServer } from 'node:http'
import { pathToFileURL } from 'node:url'
import { Front, listen, readBody } from './github_front.mjs'

const { createEmulator } = await import(pathToFileURL(process.argv[2]))
const worlds = new Map()

async function freePort() {
  const server = createServer()
  const port = await listen(server)
  await new Promise((resolve) => server.close(resolve))
  return port
}

async function open(seed) {
  const front = new Front(seed)
  const server = createServer((request, response) => front.answer(request, response))
  const port = await listen(server)
  const url = `http://127.0.0.1:${port}`
  const apps = (seed.github.apps ?? []).map((app) => ({ ...app, webhook_url: `${url}/_world/deliver` }))
  const behind = await freePort()
  const emulator = await createEmulator({
    service: 'github', port: behind, baseUrl: url, seed: { ...seed, github: { ...seed.github, apps } },
  })
  front.open(url, `http://127.0.0.1:${behind}`)
  worlds.set(port, async () => {
    server.close()
    server.closeAllConnections()
    await emulator.close()
  })
  return { url, port }
}

async function control(request, response) {
  let said = {}
  if (request.method === 'POST') said = await open(JSON.parse(await readBody(request)))
  const port = Number(request.url.slice(1))
  if (request.method === 'DELETE' && worlds.has(port)) {
    await worlds.get(port)()
    worlds.delete(port)
  }
  response.end(JSON.stringify(said))
}

const server = createServer((request, response) =>
  control(request, response).catch((error) => {
    response.statusCode = 500
    response.end(String(error.stack))
  }))
console.log(JSON.stringify({ port: await listen(server) }))
// Ends with the process that started it.
process.stdin.on('end', () => process.exit()).resume()
