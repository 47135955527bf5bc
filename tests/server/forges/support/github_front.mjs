// Stands before an emulated GitHub and mends what it does differently from GitHub:
// unknown tokens are 401, a second pull request for a head is 422, as is a head that does not exist or has no commits; pull requests
// follow their branch and say `synchronize`; ETags and 304; GraphQL's two mutations of drafts; commit statuses; replies to reviews;
// logs and reruns of jobs; the comments of a repository; the user of an App; a push webhook for a new branch; comments on pull requests in webhooks; delivery ids that are unique.
//
// /_world/… is for tests: faults, revoked tokens, requests that were seen, access of git, commits whose id differs here.
import { createHash, createHmac, randomUUID } from 'node:crypto'

const ZERO = '0'.repeat(40)
const DROPPED = new Set(['connection', 'content-length', 'host', 'transfer-encoding', 'keep-alive', 'if-none-match', 'accept-encoding'])

export const listen = (server) =>
  new Promise((resolve) => server.listen(0, '127.0.0.1', () => resolve(server.address().port)))

export async function readBody(request) {
  const parts = []
  for await (const part of request) parts.push(part)
  return Buffer.concat(parts)
}

class Problem extends Error {
  constructor(status, document) {
    super(document.message)
    Object.assign(this, { status, document })
  }
}

const invalid = (errors) => new Problem(422, { message: 'Validation Failed', errors })

export class Front {
  constructor(seed) {
    this.app = seed.github.apps?.[0]
    this.hook = this.app?.webhook_url
    this.tokens = new Map(Object.keys(seed.tokens ?? {}).map((token) => [token, {}]))
    this.revoked = new Set()
    this.used = new Set()
    this.seen = []
    this.faults = []
    this.here = new Map() // a commit's id at the git server -> its id here, where they differ
    this.there = new Map()
    this.pulls = new Map() // node id -> path
    this.moved = new Map() // repository and ref -> when it was pushed last
    this.statuses = new Map()
    this.logs = new Map()
    this.reruns = new Map() // a job -> the job of the next attempt
    this.pending = new Set()
  }

  open(url, behind) {
    this.url = url
    this.behind = behind
    this.admin = [...this.tokens.keys()][0]
  }

  async answer(request, response) {
    const body = await readBody(request)
    let said
    try {
      said = await this.handle(request, body)
    } catch (error) {
      said = json(error.status ?? 500, error.document ?? { message: String(error.stack) })
    }
    if (said.isLost) return response.destroy()
    response.writeHead(said.status, said.headers)
    response.end(said.body)
  }

  async handle(request, body) {
    const path = decodeURI(request.url.split('?')[0])
    if (path.startsWith('/_world/')) return this.world(path.slice(8), request, body)
    const fault = this.takeFault(request.method, path)
    this.seen.push({ method: request.method, path: request.url, status: fault?.status })
    if (fault?.lost === 'request') return { isLost: true }
    if (fault && !fault.lost) return { status: fault.status, headers: { 'content-type': 'application/json', ...fault.headers }, body: fault.body ?? '' }
    this.requireToken(request)
    const told = await this.route(request, path, body)
    this.seen.at(-1).status = told.status
    return { ...this.tagged(request, told), isLost: fault?.lost === 'answer' }
  }

  takeFault(method, path) {
    const fault = this.faults.find((each) => each.times > 0 && (!each.method || each.method === method) && new RegExp(each.path ?? '').test(path))
    if (fault) fault.times -= 1
    return fault
  }

  requireToken(request) {
    const token = tokenOf(request)
    this.used.add(token)
    const isJwt = token.split('.').length === 3
    if (this.revoked.has(token) || (token && !isJwt && !this.tokens.has(token))) {
      throw new Problem(401, { message: 'Bad credentials', documentation_url: 'https://docs.github.com/rest' })
    }
  }

  async route(request, path, body) {
    const { method } = request
    let found
    if (method === 'POST' && path === '/graphql') return this.graphql(request, JSON.parse(body))
    if (method === 'GET' && path === `/users/${this.app?.slug}[bot]`) {
      return json(200, { login: `${this.app.slug}[bot]`, id: 4_000_000 + this.app.app_id, type: 'Bot' })
    }
    if ((found = path.match(/^\/repos\/([^/]+\/[^/]+)\/commits\/([^/]+)\/status$/))) return this.combined(found[1], found[2])
    if (method === 'POST' && (found = path.match(/^\/repos\/([^/]+\/[^/]+)\/statuses\/([^/]+)$/))) return this.addStatus(found[1], found[2], JSON.parse(body))
    if ((found = path.match(/\/actions\/jobs\/(\d+)\/logs$/)) && this.logs.has(found[1])) {
      return { status: 200, headers: { 'content-type': 'text/plain' }, body: this.logs.get(found[1]) }
    }
    if (method === 'GET' && (found = path.match(/^(\/repos\/[^/]+\/[^/]+)\/issues\/comments$/))) {
      const asked = new URL(request.url, this.url)
      return this.paged(asked, await this.comments(found[1], asked.searchParams.get('since') ?? ''))
    }
    if ((found = path.match(/\/actions\/jobs\/(\d+)$/)) && this.logs.has(found[1])) return json(200, { id: Number(found[1]), run_id: Number(found[1]), run_attempt: 1 })
    if ((found = path.match(/^(\/repos\/[^/]+\/[^/]+)\/actions\/runs\/(\d+)(\/rerun-failed-jobs)?$/)) && this.logs.has(found[2])) {
      if (found[3]) await this.rerun(found[1], found[2])
      return found[3] ? json(201, {}) : json(200, { id: Number(found[2]), run_attempt: this.reruns.has(found[2]) ? 2 : 1 })
    }
    if (method === 'POST' && (found = path.match(/^(\/repos\/.+\/pulls\/\d+\/comments)\/(\d+)\/replies$/))) {
      const document = { ...JSON.parse(body), in_reply_to_id: Number(found[2]) }
      return this.pass({ method, url: found[1], headers: request.headers }, Buffer.from(JSON.stringify(document)))
    }
    if (method === 'POST' && (found = path.match(/^\/repos\/([^/]+\/[^/]+)\/pulls$/))) await this.requireNewPull(found[1], JSON.parse(body))
    const told = await this.pass(request, body)
    return this.after(method, path, told, body)
  }

  async after(method, path, told, body) {
    let found
    if (told.status >= 300) return told
    if (method === 'POST' && path.endsWith('/access_tokens')) {
      const minted = JSON.parse(told.body)
      this.tokens.set(minted.token, { permissions: minted.permissions, repositories: minted.repositories?.map((each) => each.full_name) })
    }
    if ((found = path.match(/^\/repos\/([^/]+\/[^/]+)\/pulls(\/\d+)?$/))) return this.followed(told, found[1])
    if (path.endsWith('/annotations')) return json(200, JSON.parse(told.body).check_annotations)
    if (path.includes('/check-runs')) return this.withJobs(told)
    if ((found = path.match(/^\/repos\/([^/]+\/[^/]+)\/git\/refs/)) && method !== 'GET') this.noteRef(found[1], method, path, JSON.parse(body.length ? body : '{}'))
    return told
  }

  // Pass a request on, with the ids of commits as the emulator has them.
  async pass(request, body) {
    const headers = Object.fromEntries(Object.entries(request.headers).filter(([name]) => !DROPPED.has(name)))
    const answer = await fetch(this.behind + this.renamed(request.url, this.here), {
      method: request.method,
      headers,
      body: ['GET', 'HEAD'].includes(request.method) ? undefined : this.renamed(body.toString(), this.here),
      redirect: 'manual',
    })
    const told = Object.fromEntries([...answer.headers].filter(([name]) => !DROPPED.has(name) && name !== 'content-encoding'))
    return { status: answer.status, headers: told, body: this.renamed(await answer.text(), this.there) }
  }

  renamed(text, names) {
    return names.size ? text.replace(/\b[0-9a-f]{40}\b/g, (id) => names.get(id) ?? id) : text
  }

  async ask(method, path, document) {
    const headers = { authorization: `Bearer ${this.admin}`, 'content-type': 'application/json' }
    const told = await this.pass({ method, url: path, headers }, Buffer.from(document ? JSON.stringify(document) : ''))
    return { status: told.status, document: told.body ? JSON.parse(told.body) : undefined }
  }

  async headOf(repository, branch) {
    const told = await this.ask('GET', `/repos/${repository}/git/ref/heads/${branch}`)
    return told.document?.object?.sha
  }

  async requireNewPull(repository, { head, base }) {
    const branch = String(head).split(':').at(-1)
    const owner = repository.split('/')[0]
    const sha = await this.headOf(repository, branch)
    if (!sha) throw invalid([{ resource: 'PullRequest', field: 'head', code: 'invalid' }])
    if (sha === (await this.headOf(repository, base))) {
      throw invalid([{ resource: 'PullRequest', code: 'custom', message: `No commits between ${base} and ${branch}` }])
    }
    const open = await this.ask('GET', `/repos/${repository}/pulls?head=${owner}:${branch}&state=open`)
    if (open.document.length) {
      throw invalid([{ resource: 'PullRequest', code: 'custom', message: `A pull request already exists for ${owner}:${branch}.` }])
    }
  }

  // Let open pull requests have the head that their branch has now.
  async followed(told, repository) {
    const document = JSON.parse(told.body)
    for (const pull of [document].flat()) await this.follow(pull, repository)
    return { ...told, body: JSON.stringify(document) }
  }

  async follow(pull, repository) {
    this.pulls.set(pull.node_id, `/repos/${repository}/pulls/${pull.number}`)
    if (pull.state !== 'open') return
    pull.head.sha = (await this.headOf(repository, pull.head.ref)) ?? pull.head.sha
    const moved = this.moved.get(`${repository} refs/heads/${pull.head.ref}`)
    if (moved && moved > pull.updated_at) pull.updated_at = moved
  }

  // The emulator takes `comments` for the number of an issue.
  async comments(repository, since) {
    const found = []
    for (const [kind, page] of [['issues', 'issues'], ['pulls', 'pull']]) {
      const { document: subjects } = await this.ask('GET', `${repository}/${kind}?state=all&per_page=100`)
      for (const { number } of subjects) {
        const listed = await this.all(`${repository}/issues/${number}/comments`)
        const of = { issue_url: `${this.url}${repository}/issues/${number}` }
        found.push(...listed.map((each) => ({ ...each, ...of, html_url: `${this.url}${repository.slice(6)}/${page}/${number}#issuecomment-${each.id}` })))
      }
    }
    return found.filter((each) => each.updated_at >= since)
  }

  async all(path) {
    const listed = []
    for (let page = 1; listed.length === (page - 1) * 100; page++) {
      const { document } = await this.ask('GET', `${path}?per_page=100&page=${page}`)
      if (document.length === 0) break
      listed.push(...document)
    }
    return listed
  }

  paged(asked, items) {
    const size = Number(asked.searchParams.get('per_page') ?? 30)
    const page = Number(asked.searchParams.get('page') ?? 1)
    const told = json(200, items.slice((page - 1) * size, page * size))
    if (page * size >= items.length) return told
    asked.searchParams.set('page', page + 1)
    return { ...told, headers: { ...told.headers, link: `<${asked}>; rel="next"` } }
  }

  // Each job is the only one of its workflow run here.
  async rerun(repository, id) {
    const { document: job } = await this.ask('GET', `${repository}/check-runs/${id}`)
    const wanted = { name: job.name, head_sha: job.head_sha, status: 'in_progress' }
    const { document: next } = await this.ask('POST', `${repository}/check-runs`, wanted)
    this.reruns.set(id, next.id)
    this.logs.set(String(next.id), '')
  }

  withJobs(told) {
    const document = JSON.parse(told.body)
    if (document.check_runs) document.check_runs = document.check_runs.filter((run) => !this.reruns.has(String(run.id)))
    for (const run of document.check_runs ?? [document]) {
      if (this.logs.has(String(run.id))) run.app = { id: 15368, slug: 'github-actions', name: 'GitHub Actions' }
    }
    return { ...told, body: JSON.stringify(document) }
  }

  tagged(request, told) {
    if (request.method !== 'GET' || told.status !== 200) return told
    const etag = `W/"${createHash('sha256').update(told.body).digest('hex')}"`
    if (request.headers['if-none-match'] === etag) return { status: 304, headers: { etag }, body: '' }
    return { ...told, headers: { ...told.headers, etag } }
  }

  async graphql(request, { query, variables }) {
    const path = this.pulls.get(variables.id)
    if (!path) return json(200, { errors: [{ message: `Could not resolve to a node with the global id of '${variables.id}'` }] })
    const draft = query.includes('convertPullRequestToDraft')
    const told = await this.pass({ method: 'PATCH', url: path, headers: request.headers }, Buffer.from(JSON.stringify({ draft })))
    return told.status < 300 ? json(200, { data: {} }) : told
  }

  combined(repository, sha) {
    const statuses = [...(this.statuses.get(`${repository} ${sha}`) ?? new Map()).values()]
    return json(200, { sha, state: 'pending', total_count: statuses.length, statuses })
  }

  addStatus(repository, sha, status) {
    const key = `${repository} ${sha}`
    if (!this.statuses.has(key)) this.statuses.set(key, new Map())
    const document = { id: this.statuses.get(key).size + 1, description: null, target_url: null, ...status }
    this.statuses.get(key).set(status.context, document)
    return json(201, document)
  }

  noteRef(repository, method, path, { ref, sha }) {
    const name = ref ?? `refs/${path.split('/git/refs/')[1]}`
    this.moved.set(`${repository} ${name}`, new Date().toISOString().replace(/\.\d+/, ''))
    this.later(this.tellPush(repository, name, method, sha))
  }

  // The emulator says nothing of a push that makes a branch, nor that a pull request has a new head.
  async tellPush(repository, ref, method, sha) {
    const { document: about } = await this.ask('GET', `/repos/${repository}`)
    const sender = about.owner
    if (method === 'POST') await this.deliver('push', { ref, before: ZERO, after: sha, created: true, repository: about, sender })
    const { document: pulls } = await this.ask('GET', `/repos/${repository}/pulls?state=open`)
    for (const pull of method === 'PATCH' ? pulls : []) {
      if (`refs/heads/${pull.head.ref}` !== ref) continue
      await this.follow(pull, repository)
      await this.deliver('pull_request', { action: 'synchronize', number: pull.number, after: sha, pull_request: pull, repository: about, sender })
    }
  }

  async deliver(event, document) {
    const installation = this.app?.installations?.[0]
    const body = JSON.stringify({ ...document, ...(installation ? { installation: { id: installation.installation_id } } : {}) })
    await this.post(event, body)
  }

  async post(event, body) {
    if (!this.hook) return
    const signature = createHmac('sha256', this.app.webhook_secret ?? '').update(body).digest('hex')
    const headers = { 'content-type': 'application/json', 'x-github-event': event, 'x-github-delivery': randomUUID(), 'x-hub-signature-256': `sha256=${signature}` }
    await fetch(this.hook, { method: 'POST', headers, body, signal: AbortSignal.timeout(10_000) }).catch(() => {})
  }

  // Say in webhooks that a comment is on a pull request, as GitHub does.
  withPull(body) {
    const document = JSON.parse(body)
    const path = `/repos/${document.repository?.full_name}/pulls/${document.issue?.number}`
    if (![...this.pulls.values()].includes(path)) return body
    document.issue.pull_request = { url: `${this.url}${path}` }
    return JSON.stringify(document)
  }

  later(work) {
    const task = work.catch((error) => console.error(error)).finally(() => this.pending.delete(task))
    this.pending.add(task)
  }

  async world(action, request, body) {
    const given = body.length && request.headers['content-type'] === 'application/json' ? JSON.parse(body) : {}
    switch (action.split('/')[0]) {
      case 'deliver':
        this.later(this.post(request.headers['x-github-event'], this.withPull(this.renamed(body.toString(), this.there))))
        return json(202, {})
      case 'webhook':
        this.hook = given.url
        return json(200, {})
      case 'settle':
        while (this.pending.size) await Promise.all(this.pending)
        return json(200, {})
      case 'faults':
        this.faults.push({ times: 1, ...given })
        return json(200, {})
      case 'credentials':
        return json(200, [...new Set([...this.used, ...this.tokens.keys()])].filter(Boolean))
      case 'requests':
        return json(200, this.seen)
      case 'revoke':
        for (const [token, { permissions }] of this.tokens) if (permissions || token === given.token) this.revoked.add(token)
        return json(200, {})
      case 'alias':
        this.here.set(given.there, given.here)
        this.there.set(given.here, given.there)
        return json(200, {})
      case 'logs':
        this.logs.set(action.split('/')[1], body.toString())
        return json(200, {})
      case 'access':
        return json(200, this.accessOf(given.token, given.repository))
    }
    return json(404, {})
  }

  // What git may do with a token.
  accessOf(token, repository) {
    const held = this.revoked.has(token) ? undefined : this.tokens.get(token)
    if (!held) return { read: false, write: false, workflows: false }
    if (!held.permissions) return { read: true, write: true, workflows: true }
    const isFor = !held.repositories || held.repositories.includes(repository)
    const { contents, workflows } = held.permissions
    return { read: isFor && Boolean(contents), write: isFor && contents === 'write', workflows: isFor && workflows === 'write' }
  }
}

const tokenOf = (request) => (request.headers.authorization ?? '').replace(/^(Bearer|token)\s+/i, '').trim()

const json = (status, document) => ({ status, headers: { 'content-type': 'application/json; charset=utf-8' }, body: JSON.stringify(document) })
