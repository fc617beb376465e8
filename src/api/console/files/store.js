// `headwater.v1.Store`: reading at a moment, history, and commits over all faces.

import { field, fromBase64, lines, rpc, send } from "./api.js"

/** Reads targets at a point, all pages. `point` is null for now, `{ index }` or `{ unix_ms }`. */
export async function read(targets, point, { signal, max = Infinity } = {}) {
  const request = { targets, at: point ?? undefined, page_size: 1000 }
  const result = { entities: [] }
  for (let token; ;) {
    const page = await rpc("/v1/store/read", { ...request, page_token: token }, { signal })
    if (!token) Object.assign(result, moment(page))
    for (const entity of page.entities ?? []) result.entities.push(entity)
    token = field(page, "next_page_token")
    if (!token || result.entities.length >= max) return { ...result, isWhole: !token }
  }
}

function moment(answer) {
  // Zeros are left out. Before the first change of a key the revision is 1.
  return {
    index: Number(answer.index ?? 0),
    revision: Number(answer.revision ?? 1),
    ms: Number(field(answer, "unix_ms") ?? 0),
    // The lineage of the index.
    epoch: answer.epoch,
  }
}

// An entity that is small and always readable by those who may read keys; its content does not matter.
const PROBE = "/kv/~/~/headwater-console?children=false"

/** Resolves a point to index, revision and time. */
export async function resolve(point, signal) {
  return moment(await rpc("/v1/store/read", { targets: [PROBE], at: point ?? undefined, page_size: 1 }, { signal }))
}

/**
 * Commands of which each is whole, from those of one answer. A command that is larger than one message comes in parts:
 * `open` is the beginning of one from the answers before. Returns the commands, and the one that is open then.
 */
export function whole(list, open) {
  const found = []
  for (const part of list ?? []) {
    if (open?.index === part.index) for (const change of part.changes ?? []) open.changes.push(change)
    else open = { ...part, changes: [...(part.changes ?? [])] }
    if (part.continued) continue
    delete open.continued
    found.push(open)
    open = undefined
  }
  return [found, open]
}

/** The answers of a history that ends. */
async function* history(request, signal) {
  const response = await send("/v1/store/history", { method: "POST", body: JSON.stringify(request), signal })
  for await (const line of lines(response)) {
    if (line.error) throw new Error(line.error.message)
    yield line.result ?? line
  }
}

/**
 * The commands of a history that ends, with `reached`, `oldest` and `epoch`. A command with more than `most` changes ends it,
 * and `isPart` of the command is set then.
 */
export async function commands(request, signal, most = Infinity) {
  const result = { commands: [], reached: 0, oldest: 0 }
  let open
  for await (const answer of history(request, signal)) {
    let found
    ;[found, open] = whole(answer.commands, open)
    result.epoch = answer.epoch
    result.commands.push(...found)
    if (open?.changes.length > most) {
      result.commands.push({ ...open, isPart: true })
      break
    }
    result.reached = Number(answer.reached ?? result.reached)
    result.oldest = Number(answer.oldest ?? result.oldest)
  }
  return result
}

/** The first moment of which everything is kept, and the newest one. */
export async function bounds(signal) {
  const newest = await resolve(null, signal)
  const { oldest } = await commands({ direction: "BACKWARD", limit: "1", paths_only: true }, signal)
  if (oldest > 0) return { newest, oldest: await resolve({ index: String(oldest) }, signal) }
  const { commands: first } = await commands({ limit: "1", paths_only: true }, signal)
  return { newest, oldest: { index: 0, ms: first.length ? Number(field(first[0], "unix_ms")) - 1 : newest.ms } }
}

/** The path of a key, from its bytes: the names of the watcher, percent-encoded. */
export function keyPath(key) {
  return targetOf("kv", namesOfKey(key))
}

/** A target from a space and the names of its parts. */
export function targetOf(space, names) {
  return `/${[space, ...names].map(name => encodeURIComponent(name)).join("/")}`
}

/** The space and the names of a path. */
export function namesOf(path) {
  const [space, ...names] = path.split("?")[0].slice(1).split("/")
  return [
    space,
    names.map(name => {
      try {
        return decodeURIComponent(name)
      } catch {
        return name
      }
    }),
  ]
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true })
const hex = bytes => Array.from(bytes, byte => byte.toString(16).padStart(2, "0")).join("")
const PARTS_MAX = 64

/** The names of a key's parts, as docs/watcher.md says. */
export function namesOfKey(key) {
  const names = []
  for (let from = 0; from <= key.length;) {
    let end = key.indexOf(47, from)
    if (end < 0 || names.length === PARTS_MAX - 1) end = key.length
    const part = key.subarray(from, end)
    names.push(names.length === PARTS_MAX - 1 && part.includes(47) ? `~x${hex(part)}` : nameOfPart(part))
    from = end + 1
  }
  return names
}

function nameOfPart(part) {
  if (part.length === 0) return "~"
  try {
    const text = utf8.decode(part)
    return text === "." || text === ".." || text.startsWith("~") ? `~${text}` : text
  } catch {
    return `~x${hex(part)}`
  }
}

/** The bytes of the key with these names. */
export function keyOfNames(names) {
  const parts = names.map(bytesOfName)
  const key = new Uint8Array(parts.reduce((sum, part) => sum + part.length + 1, -1))
  let at = 0
  for (const part of parts) {
    key.set(part, at)
    at += part.length
    if (at < key.length) key[at++] = 47
  }
  return key
}

function bytesOfName(name) {
  if (name === "~") return new Uint8Array()
  if (name.startsWith("~x")) return Uint8Array.from(name.slice(2).match(/../g) ?? [], digits => parseInt(digits, 16))
  return new TextEncoder().encode(name.startsWith("~") ? name.slice(1) : name)
}

/** A name as people read it. */
export function label(name) {
  if (name === "~") return "(empty)"
  if (name.startsWith("~x")) return `\\x${name.slice(2)}`
  return name.startsWith("~") ? name.slice(1) : name
}

/** The page of the console that shows an entity. */
export function pageOf(path) {
  const [space, names] = namesOf(path)
  const rest = names.map(encodeURIComponent).join("/")
  const page = {
    kv: "keys",
    services: "services",
    nodes: "services/~node",
    resources: "resources",
    leases: "leases",
    cluster: "cluster",
  }[space]
  return page && `#/${page}${rest ? `/${rest}` : ""}`
}

/** The sign of a change: created, updated or removed. */
export const signOf = change => ({ CREATED: "+", REMOVED: "−" })[change.kind] ?? "~"

/** Whether an entity stays in the store only by a path below it. */
const isDirectory = entity => (entity?.data?.["@type"] ?? "").endsWith("protobuf.Empty")

/** The net effect of commands: for each path the state before the first and after the last of them. */
export function net(commandList) {
  const changed = new Map()
  for (const command of commandList) {
    for (const change of command.changes ?? []) {
      if (isDirectory(change.before ?? change.after)) continue
      const known = changed.get(change.path)
      if (known) known.after = change.after
      else changed.set(change.path, { path: change.path, before: change.before, after: change.after })
    }
  }
  // Written anew with the same content is no difference.
  const content = ({ data } = {}) => {
    const { modRevision, mod_revision, createRevision, create_revision, version, generation, ...rest } = data ?? {}
    return JSON.stringify(data ? rest : null)
  }
  return [...changed.values()]
    .filter(change => content(change.before) !== content(change.after))
    .map(change => ({ ...change, kind: !change.before ? "CREATED" : change.after ? "UPDATED" : "REMOVED" }))
    .sort((a, b) => (a.path < b.path ? -1 : 1))
}

/** The bytes of the value of an entity that is a key; null for any other. */
export function valueOf(entity) {
  return (entity?.data?.["@type"] ?? "").endsWith("mvccpb.KeyValue") ? fromBase64(entity.data.value) : null
}

// Messages whose JSON is not an object of their fields.
const OWN_JSON =
  /\/google\.protobuf\.(Any|Duration|Empty|FieldMask|ListValue|Struct|Timestamp|Value|(Bool|Bytes|Double|Float|U?Int(32|64)|String)Value)$/

/** The data of a resource as it is written: without its type, which stands beside its fields or beside `value`. */
export function contentOf(data) {
  if (data === null || typeof data !== "object" || Array.isArray(data)) return data
  const { "@type": type = "", ...fields } = data
  return OWN_JSON.test(type) ? fields.value : fields
}
