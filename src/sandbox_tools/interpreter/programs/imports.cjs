// Rewrites `import` for code that is evaluated as a script: static imports become awaited calls of __import, which
// declare the same names, and `import(…)` becomes `__import(…)`. Strings, comments, templates and regular expressions
// are left as they are.
'use strict'

const TRIVIA = String.raw`(?:\s|//[^\n]*(?:\n|$)|/\*[\s\S]*?\*/)*`
const STRING = String.raw`("(?:[^"\\\n]|\\[\s\S])*"|'(?:[^'\\\n]|\\[\s\S])*')`
const NAME = String.raw`[\p{ID_Start}$_][\p{ID_Continue}$\u200c\u200d]*`
const STATIC = new RegExp(
  String.raw`import\b${TRIVIA}(?:([^'"();=]*?)\bfrom${TRIVIA})?${STRING}(?:${TRIVIA}with${TRIVIA}\{[^}]*\})?`, 'uy'
)
const CALL = new RegExp(String.raw`import${TRIVIA}\(`, 'uy')
const META = new RegExp(String.raw`import${TRIVIA}\.${TRIVIA}meta\b`, 'uy')
const WORD = new RegExp(NAME, 'uy')
const SKIPPED = [/\/\/[^\n]*/y, /\/\*[\s\S]*?\*\//y, new RegExp(STRING, 'y')]
const REGULAR_EXPRESSION = /\/(?![*/])(?:[^\\/[\n]|\\.|\[(?:[^\]\\\n]|\\.)*\])+\/[a-z]*/y
const BEFORE_EXPRESSION = new Set(
  'return typeof instanceof in of new delete void throw case do else await yield'.split(' ')
)

const match = (pattern, code, at) => {
  pattern.lastIndex = at
  return pattern.exec(code)
}

function declarations (clause, source) {
  const imported = `await __import(${source})`
  if (clause === undefined) return `${imported};`
  const names = clause.replace(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, ' ').trim()
  const [, first, rest = ''] = /^([^,{*]*),?([\s\S]*)$/.exec(names)
  const parts = []
  if (first.trim()) parts.push(`{ default: ${first.trim()} } = ${imported}`)
  const namespace = /\*\s*as\s+(\S+)/.exec(rest)
  if (namespace) parts.push(`${namespace[1]} = ${imported}`)
  const named = /\{([\s\S]*)\}/.exec(rest)
  if (named) {
    const renamed = named[1].split(',').map(one => one.trim().replace(/\s+as\s+/, ': ')).filter(Boolean)
    parts.push(`{ ${renamed.join(', ')} } = ${imported}`)
  }
  return `const ${parts.join(', ')};`
}

function rewriteImports (code) {
  if (!code.includes('import')) return code
  let result = ''
  let at = 0
  let previous = '' // the last token, which tells a division from a regular expression
  const braces = [] // for each open brace whether it belongs to a template
  const copy = text => {
    result += text
    at += text.length
  }
  const copyTemplate = () => {
    const [text] = match(/(?:[^\\`$]|\\[\s\S]|\$(?!\{))*(?:`|\$\{|$)/y, code, at)
    copy(text)
    if (text.endsWith('${')) {
      braces.push(true)
      previous = '{'
    } else previous = '`'
  }
  while (at < code.length) {
    const skipped = SKIPPED.map(pattern => match(pattern, code, at)).find(Boolean)
    if (skipped) {
      if (skipped[1]) previous = "'"
      copy(skipped[0])
      continue
    }
    const [word] = match(WORD, code, at) ?? []
    if (word === 'import' && previous !== '.') {
      const call = match(CALL, code, at)
      const meta = !call && match(META, code, at)
      const statement = !call && !meta && match(STATIC, code, at)
      const [from] = call ?? (meta || statement || [word])
      result += call ? '__import(' : meta ? '({ url: undefined })' : statement ? declarations(statement[1], statement[2]) : word
      at += from.length
      previous = call ? '(' : ')'
    } else if (word) {
      copy(word)
      previous = word
    } else if (code[at] === '`') {
      copy('`')
      copyTemplate()
    } else if (code[at] === '}' && braces.pop()) {
      copy('}')
      copyTemplate()
    } else {
      const isOperand = /[\p{ID_Continue}$)\]}'`]$/u.test(previous) && !BEFORE_EXPRESSION.has(previous)
      const expression = code[at] === '/' && !isOperand && match(REGULAR_EXPRESSION, code, at)
      if (code[at] === '{') braces.push(false)
      if (!/\s/.test(code[at])) previous = expression ? ')' : code[at]
      copy(expression ? expression[0] : code[at])
    }
  }
  return result
}

module.exports = { rewriteImports }
