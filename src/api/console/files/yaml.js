// The part of YAML that manifests need: mappings, lists, scalars, block texts, flow collections and comments.

const PLAIN = /^[A-Za-z_/][\w ./@%-]*$/
const RESERVED = /^(true|false|null|yes|no|on|off|~)$/i

function scalar(value) {
  if (value === null || value === undefined) return "null"
  if (typeof value !== "string") return String(value)
  return PLAIN.test(value) && !RESERVED.test(value) && !value.endsWith(" ") ? value : JSON.stringify(value)
}

const isEmpty = value => (Array.isArray(value) ? value.length === 0 : Object.keys(value).length === 0)
const isTree = value => value !== null && typeof value === "object"

/** A value as YAML. */
export function write(value, indent = "") {
  if (!isTree(value)) return `${indent}${scalar(value)}\n`
  if (isEmpty(value)) return `${indent}${Array.isArray(value) ? "[]" : "{}"}\n`
  if (Array.isArray(value)) {
    return value
      .map(item => {
        if (!isTree(item) || isEmpty(item)) return `${indent}- ${write(item)}`
        return `${indent}- ${write(item, `${indent}  `).slice(indent.length + 2)}`
      })
      .join("")
  }
  return Object.entries(value)
    .map(([key, item]) => {
      const name = `${indent}${scalar(key)}:`
      if (typeof item === "string" && /\n/.test(item) && !/[^\S\n]\n|^\s|\r/.test(item)) {
        const chomp = item.endsWith("\n\n") ? "+" : item.endsWith("\n") ? "" : "-"
        const text = item
          .replace(/\n$/, "")
          .split("\n")
          .map(line => (line ? `${indent}  ${line}` : ""))
        return `${name} |${chomp}\n${text.join("\n")}\n`
      }
      return isTree(item) && !isEmpty(item) ? `${name}\n${write(item, `${indent}  `)}` : `${name} ${write(item)}`
    })
    .join("")
}

/** An error of a text, with its line. */
export class YamlError extends Error {
  constructor(line, text) {
    super(`line ${line + 1}: ${text}`)
    this.line = line
  }
}

/** Reads one document. */
export function read(text) {
  const lines = text
    .split("\n")
    .map((raw, number) => ({ raw, number, indent: raw.search(/\S|$/), text: withoutComment(raw).trim() }))
  const fail = (line, what) => {
    throw new YamlError(line.number ?? lines.length - 1, what)
  }
  let at = 0
  const skip = () => {
    while (at < lines.length && (lines[at].text === "" || lines[at].text === "---")) at++
    return lines[at]
  }

  function block(indent) {
    const line = skip()
    if (!line || line.indent < indent) return null
    if (/^\s*\t/.test(line.raw)) fail(line, "is indented by a tab; use spaces")
    if (isItem(line.text)) return list(line.indent)
    if (keyOf(line)) return mapping(line.indent)
    at++
    return value(line.text, line)
  }

  function list(indent) {
    const items = []
    for (let line; (line = skip()) && line.indent === indent && isItem(line.text);) {
      const rest = line.text.slice(1)
      const inner = rest.trim()
      if (inner === "") {
        at++
        items.push(block(indent + 1))
      } else if (/^[|>]/.test(inner)) {
        at++
        items.push(blockText(inner, indent, line))
      } else {
        // The rest of the line is a block of its own, indented by the dash.
        line.indent += 1 + rest.search(/\S/)
        line.text = inner
        items.push(isItem(inner) || keyOf(line) ? block(line.indent) : (at++, value(inner, line)))
      }
    }
    return items
  }

  function mapping(indent) {
    const object = {}
    for (let line; (line = skip()) && line.indent === indent;) {
      const found = keyOf(line)
      if (!found) fail(line, "wanted `name: value`")
      const [key, rest] = found
      if (Object.hasOwn(object, key)) fail(line, `${JSON.stringify(key)} is there twice`)
      at++
      if (/^[|>][+-]?$/.test(rest)) object[key] = blockText(rest, indent, line)
      else if (rest !== "") object[key] = value(rest, line)
      else {
        const next = skip()
        const isNested = next && (next.indent > indent || (next.indent === indent && isItem(next.text)))
        object[key] = isNested ? block(next.indent) : null
      }
    }
    const next = skip()
    if (next && next.indent > indent) fail(next, "is indented too far")
    return object
  }

  function blockText(head, indent) {
    const taken = []
    let inner = 0
    while (at < lines.length && (lines[at].raw.trim() === "" || lines[at].indent > indent)) {
      inner ||= lines[at].raw.trim() === "" ? 0 : lines[at].indent
      taken.push(lines[at++].raw.slice(inner))
    }
    let kept = taken.length
    while (kept > 0 && taken[kept - 1].trim() === "") kept--
    const body = taken.slice(0, kept).join(head[0] === ">" ? " " : "\n")
    if (head[1] === "-") return body
    return head[1] === "+" ? body + "\n".repeat(taken.length - kept + 1) : `${body}\n`
  }

  function keyOf(line) {
    const quoted = /^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')\s*:(?=\s|$)(.*)$/.exec(line.text)
    if (quoted) return [value(quoted[1], line), quoted[2].trim()]
    const plain = /^([^\s"'[\]{},#&*!|>%@`-][^#]*?|-[^\s#:]+)\s*:(?=\s|$)(.*)$/.exec(line.text)
    return plain && [plain[1], plain[2].trim()]
  }

  function value(text, line) {
    if (/^[&*!]/.test(text)) fail(line, "anchors, aliases and tags are not read here")
    if (text[0] === "[" || text[0] === "{") {
      let whole = text
      while (!isClosed(whole) && at < lines.length) whole += ` ${lines[at++].text}`
      const flow = new Flow(whole, what => fail(line, what))
      return flow.whole()
    }
    return plainValue(text, what => fail(line, what))
  }

  const result = block(0)
  const rest = skip()
  if (rest) fail(rest, rest.indent > 0 ? "is indented too far" : "does not belong to the document")
  return result
}

const isItem = text => text === "-" || text.startsWith("- ")

function withoutComment(raw) {
  let quote = ""
  for (let at = 0; at < raw.length; at++) {
    const char = raw[at]
    if (quote === '"' && char === "\\") at++
    else if (quote) quote = char === quote ? "" : quote
    else if ((char === '"' || char === "'") && (at === 0 || /[\s[{,:-]/.test(raw[at - 1]))) quote = char
    else if (char === "#" && (at === 0 || /\s/.test(raw[at - 1]))) return raw.slice(0, at)
  }
  return raw
}

function isClosed(text) {
  let depth = 0
  for (const match of text.matchAll(/"(?:[^"\\]|\\.)*"|'[^']*'|[[\]{}]/g))
    depth += { "[": 1, "{": 1, "]": -1, "}": -1 }[match[0]] ?? 0
  return depth <= 0
}

function plainValue(text, fail) {
  if (text[0] === '"') {
    try {
      return JSON.parse(text)
    } catch {
      return fail(`${text} is no quoted text`)
    }
  }
  if (text[0] === "'")
    return text.length > 1 && text.endsWith("'")
      ? text.slice(1, -1).replace(/''/g, "'")
      : fail(`${text} is no quoted text`)
  if (text === "" || text === "~" || text === "null") return null
  if (text === "true" || text === "false") return text === "true"
  if (/^[-+]?(0|[1-9]\d*)$/.test(text)) {
    const whole = Number(text)
    // Larger numbers stay exact as text, which JSON forms of protobuf take.
    return Number.isSafeInteger(whole) ? whole : text
  }
  if (/^[-+]?(\d+\.\d*|\.?\d+)([eE][-+]?\d+)?$/.test(text)) return Number(text)
  return text
}

class Flow {
  constructor(text, fail) {
    Object.assign(this, { text, at: 0, fail })
  }

  whole() {
    const value = this.value()
    this.space()
    if (this.at < this.text.length) this.fail(`unexpected ${this.text.slice(this.at)}`)
    return value
  }

  space() {
    while (/\s/.test(this.text[this.at] ?? "")) this.at++
  }

  word(end) {
    this.space()
    const rest = this.text.slice(this.at)
    const found = /^("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')/.exec(rest)?.[0] ?? end.exec(rest)[0]
    this.at += found.length
    return plainValue(found.trim(), this.fail)
  }

  value() {
    this.space()
    const open = this.text[this.at]
    if (open !== "[" && open !== "{") return this.word(/^[^,\]}]*/)
    const close = open === "[" ? "]" : "}"
    const result = open === "[" ? [] : {}
    this.at++
    for (;;) {
      this.space()
      if (this.text[this.at] === close) break
      if (open === "[") result.push(this.value())
      else {
        const key = this.word(/^[^:,\]}]*/)
        this.space()
        if (this.text[this.at] !== ":") this.fail("wanted `name: value` between braces")
        this.at++
        result[key] = this.value()
      }
      this.space()
      if (this.text[this.at] === ",") this.at++
      else if (this.text[this.at] !== close) this.fail(`wanted ${close}`)
    }
    this.at++
    return result
  }
}
