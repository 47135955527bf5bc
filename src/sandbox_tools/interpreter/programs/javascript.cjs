// Evaluates JavaScript or TypeScript cells in one global scope, as a REPL does: `await`, `import` and repeated
// declarations are allowed at the top level. A request is two fields that end with NUL: a marker, which is written to
// stdout and stderr when the cell has ended, and the code. Events are JSON lines.
// Arguments: the language, and descriptors of requests, events and interrupts.
'use strict'

const { SHARE_ENV, Worker, isMainThread, workerData } = require('node:worker_threads')
const inspector = require('node:inspector')
const net = require('node:net')

const [, , LANGUAGE, REQUESTS, EVENTS, INTERRUPTS] = process.argv.map((each, at) => (at > 2 ? Number(each) : each))
const MAIN_THREAD_PATIENCE_MS = 200

if (!isMainThread) return endLoopsOnInterrupt()

const fs = require('node:fs')
const path = require('node:path')
const util = require('node:util')
const vm = require('node:vm')
const module_ = require('node:module')
const { rewriteImports } = require('./imports.cjs')

const LONGEST_TEXT = 10_000_000
// Counts the interrupts that the main thread has seen.
const seen = new Int32Array(new SharedArrayBuffer(4))

const OWN_FRAMES = /\n +at Session\.post \(node:inspector/

const say = event => fs.writeSync(EVENTS, asciiJson(event) + '\n')

const asciiJson = value =>
  JSON.stringify(value).replace(/[\u007f-\uffff]/g, c => '\\u' + c.charCodeAt(0).toString(16).padStart(4, '0'))

const session = new inspector.Session()
session.connect()
const post = (method, parameters) =>
  new Promise((resolve, reject) =>
    session.post(method, parameters, (error, answer) => (error ? reject(error) : resolve(answer)))
  )

const importHere = specifier => {
  const name = specifier.replace(/^npm:/, '')
  const filename = path.join(process.cwd(), '[cell].mjs')
  const load = vm.runInThisContext('specifier => import(specifier)', {
    filename,
    importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER
  })
  return load(name).catch(error => {
    // Globally installed packages, which ESM does not look for.
    if (error.code !== 'ERR_MODULE_NOT_FOUND') throw error
    try {
      return load(require('node:url').pathToFileURL(globalThis.require.resolve(name)).href)
    } catch {
      throw error
    }
  })
}

const define = (name, value) =>
  Object.defineProperty(globalThis, name, { value, writable: true, configurable: true, enumerable: false })

define('require', module_.createRequire(path.join(process.cwd(), '[cell].cjs')))
define('__import', importHere)
define('display', value => showResult(value, false))
define('__show', value => showResult(value, true))
for (const name of module_.builtinModules) {
  if (/^[a-z]\w*$/.test(name) && !(name in globalThis)) {
    Object.defineProperty(globalThis, name, {
      get: () => require(name),
      set: value => define(name, value),
      configurable: true,
      enumerable: false
    })
  }
}

function showResult (value, isMain) {
  if (value === undefined && isMain) return
  const data = { 'text/plain': util.inspect(value, { maxStringLength: LONGEST_TEXT, maxArrayLength: 1000 }) }
  const bundle = value?.[Symbol.for('Jupyter.display')]
  if (typeof bundle === 'function') Object.assign(data, bundle.call(value))
  else if (Array.isArray(value) || (value && Object.getPrototypeOf(value) === Object.prototype)) {
    try {
      data['application/json'] = JSON.parse(JSON.stringify(value))
    } catch {} // circular
  }
  say({ event: 'result', data, is_main_result: isMain })
}

const prepare = code => {
  const script = LANGUAGE === 'typescript' ? module_.stripTypeScriptTypes(code, { mode: 'transform' }) : code
  return rewriteImports(script)
}

const failure = (name, value, traceback) => void say({ event: 'error', name, value, traceback })

function showError (details) {
  const { exception = {} } = details
  const [description] = String(exception.description ?? exception.value ?? details.text).split(OWN_FRAMES)
  const first = description.split('\n', 1)[0]
  const name = exception.className ?? 'Error'
  failure(name, first.startsWith(`${name}: `) ? first.slice(name.length + 2) : first, description)
}

async function evaluate (code) {
  let expression
  try {
    expression = prepare(code)
  } catch (error) {
    const [shown] = String(error.stack ?? error).split(/\n +at /)
    return failure(error.name ?? 'SyntaxError', error.message ?? String(error), shown)
  }
  const answer = await post('Runtime.evaluate', { expression, replMode: true, awaitPromise: true, userGesture: true })
  if (answer.exceptionDetails) return showError(answer.exceptionDetails)
  const { result } = answer
  if (result.objectId) {
    const functionDeclaration = 'function () { globalThis.__show(this) }'
    await post('Runtime.callFunctionOn', { objectId: result.objectId, functionDeclaration })
    await post('Runtime.releaseObject', { objectId: result.objectId })
  } else if (result.type !== 'undefined') {
    const value = result.unserializableValue ? vm.runInThisContext(result.unserializableValue) : result.value
    showResult(value, true)
  }
}

let interrupt = () => {}

async function execute (marker, code) {
  const interrupted = new Promise(resolve => { interrupt = () => resolve('interrupted') })
  // An error of the inspector: the other thread has terminated the evaluation.
  if (await Promise.race([evaluate(code).catch(error => error), interrupted])) {
    failure('Interrupted', 'The execution was interrupted.', '')
  }
  for (const stream of [process.stdout, process.stderr]) {
    if (stream.writableLength) await new Promise(resolve => stream.write('', resolve))
  }
  for (const descriptor of [1, 2]) fs.writeSync(descriptor, `\0${marker}\0`)
  say({ event: 'done' })
}

// The signal goes to the whole process group, so that programs which the cell has started end as well.
process.on('SIGINT', () => {
  Atomics.add(seen, 0, 1)
  interrupt()
})
process.on('exit', () => session.disconnect())
process.on('uncaughtException', error => console.error('Uncaught', error))

new Worker(__filename, { argv: process.argv.slice(2), workerData: seen, env: SHARE_ENV }).unref()
let last = Promise.resolve()
const fields = ['']
new net.Socket({ fd: REQUESTS, writable: false })
  .setEncoding('utf8')
  .on('data', text => {
    const [first, ...others] = text.split('\0')
    fields[fields.length - 1] += first
    fields.push(...others)
    while (fields.length > 2) {
      const [marker, code] = fields.splice(0, 2)
      last = last.then(() => execute(marker, code))
    }
  })
  .on('close', () => process.exit())
say({ event: 'ready' })

// An endless loop keeps the main thread from handling SIGINT; another thread can terminate it.
function endLoopsOnInterrupt () {
  new net.Socket({ fd: INTERRUPTS, writable: false }).on('data', () => {
    const before = Atomics.load(workerData, 0)
    setTimeout(() => {
      if (Atomics.load(workerData, 0) !== before) return
      const session = new inspector.Session()
      session.connectToMainThread()
      // A session that stays connected would keep the process from exiting.
      session.post('Runtime.terminateExecution', () => session.disconnect())
    }, MAIN_THREAD_PATIENCE_MS)
  })
}
