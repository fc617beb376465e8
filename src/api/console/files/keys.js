// Keys: a tree that loads a branch as it opens and follows it from then on, and one key with its versions.

import { asText, field, fromBase64, rpc, toBase64, utf8 } from "./api.js"
import {
  button,
  confirm,
  copyButton,
  dialog,
  duration,
  empty,
  facts,
  fail,
  fill,
  h,
  icon,
  number,
  paced,
  say,
  tabs,
  time,
} from "./dom.js"
import { Follow } from "./follow.js"
import { lowerBound } from "./list.js"
import { ListPage, opens } from "./page.js"
import { commands, keyOfNames, keyPath, label, namesOfKey, signOf, targetOf, valueOf } from "./store.js"
import { comparable, hexDump, sideBySide, valueView } from "./value.js"

// Keys in one request, requests and children of one step of loading a branch.
const PAGE = 500
const REQUESTS_MAX = 40
const CHILDREN_STEP = 1000
// A browser opens six connections to one server over HTTP/1.
const STREAMS_MAX = 2
const FRESH_MS = 1200
const RECOUNT_MS = 3000
const POLL_INTERVAL_MS = 5000
// Wait for streams, before a branch is loaded without them.
const READY_MS_MAX = 2000
const VERSIONS = 100

const SLASH = 47

const join = (...parts) => {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0))
  let at = 0
  for (const part of parts) {
    whole.set(part, at)
    at += part.length
  }
  return whole
}

/** The first key after all keys that begin with `prefix`; a zero byte, which means no end, for the empty prefix. */
function endOf(prefix) {
  let length = prefix.length
  while (length > 0 && prefix[length - 1] === 255) length--
  if (length === 0) return Uint8Array.of(0)
  const end = prefix.slice(0, length)
  end[length - 1]++
  return end
}

function isLess(a, b) {
  for (let at = 0; at < a.length && at < b.length; at++) if (a[at] !== b[at]) return a[at] < b[at]
  return a.length < b.length
}

/** A key, a branch, or both. */
class Node {
  isKey = false
  isBranch = false
  isOpen = false
  children = []
  byName = new Map()
  /** Where loading goes on; null if all children are known, undefined before the first step. */
  cursor = undefined
  loading = false
  changed = 0

  constructor(name, parent) {
    Object.assign(this, {
      name,
      parent,
      depth: parent ? parent.depth + 1 : -1,
      names: parent ? [...parent.names, name] : [],
    })
  }

  get prefix() {
    return this.names.length ? join(keyOfNames(this.names), Uint8Array.of(SLASH)) : new Uint8Array()
  }

  child(name) {
    let node = this.byName.get(name)
    if (!node) {
      node = new Node(name, this)
      this.byName.set(name, node)
      this.children.splice(
        lowerBound(this.children, name, child => child.name),
        0,
        node,
      )
    }
    return node
  }

  drop(name) {
    const node = this.byName.get(name)
    if (!node) return
    this.byName.delete(name)
    this.children.splice(
      lowerBound(this.children, name, child => child.name),
      1,
    )
    node.parent = null
  }

  clear() {
    this.children = []
    this.byName.clear()
    this.cursor = undefined
  }
}

class Keys extends ListPage {
  root = new Node("", null)
  streams = new Map()
  rows = []
  filter = new Uint8Array()
  chosen = null

  constructor(main, context) {
    super(context)
    this.build(main, {
      list: {
        label: "Keys",
        roles: ["tree", "treeitem"],
        render: (row, index) => this.row(row, index),
        near: () => this.more(),
        choose: (index, event) => this.choose(index, event),
        key: (event, index) => this.key(event, index),
      },
      search: {
        placeholder: "Prefix, such as app/",
        "aria-label": "Keys with this prefix",
        oninput: () => this.narrow(),
        wait: 200,
      },
      detail: "Key",
      tools: search => [
        search,
        this.canWrite && button("New key", () => this.create(), { symbol: "plus", kind: "small" }),
      ],
    })
    // Ten times a second is enough to follow changes, and leaves the browser time for all else.
    this.draw = paced(() => this.flatten(), 100)
    this.root.isOpen = this.root.isBranch = true
    this.begun = this.begin()
    this.move(context.parts)
  }

  // ---- the tree

  async begin() {
    await this.follow()
    await this.load(this.root)
  }

  /** Loads some more children of a branch. Keys inside a child are skipped: its branch loads them. */
  async load(node) {
    if (node.loading || node.cursor === null) return
    node.loading = true
    this.draw()
    const { prefix } = node
    const isInFilter = prefix.length < this.filter.length && prefix.every((byte, at) => byte === this.filter[at])
    const begin = isInFilter ? this.filter : prefix
    const end = endOf(begin)
    const before = node.children.length
    let from = node.cursor ?? (begin.length ? begin : Uint8Array.of(0))
    try {
      for (let requests = 0; requests < REQUESTS_MAX && node.children.length < before + CHILDREN_STEP; requests++) {
        const page = await rpc(
          "/v3/kv/range",
          {
            key: toBase64(from),
            range_end: toBase64(end),
            limit: String(PAGE),
            keys_only: true,
            ...this.revision(),
          },
          { signal: this.signal },
        )
        const kvs = page.kvs ?? []
        if (node.depth < 0 && node.cursor === undefined) this.total = Number(page.count ?? 0)
        let skip = null
        for (const kv of kvs) {
          const key = fromBase64(kv.key)
          if (skip && isLess(key, skip)) continue
          const slash = key.indexOf(SLASH, prefix.length)
          const name = namesOfKey(slash < 0 ? key : key.subarray(0, slash)).at(-1)
          const child = node.child(name)
          if (slash < 0) this.put(child, kv)
          else {
            child.isBranch = true
            skip = join(key.subarray(0, slash), Uint8Array.of(SLASH + 1))
          }
        }
        const last = kvs.length ? join(fromBase64(kvs.at(-1).key), Uint8Array.of(0)) : from
        from = skip && isLess(last, skip) ? skip : last
        node.cursor = from
        if (kvs.length < PAGE && !page.more) {
          node.cursor = null
          break
        }
        this.draw()
      }
    } catch (error) {
      if (error.isDenied && node.depth < 0) this.isDenied = true
      else fail(error)
    }
    node.loading = false
    this.draw()
  }

  revision() {
    return this.at ? { revision: String(this.at.revision) } : {}
  }

  put(node, kv) {
    node.isKey = true
    node.revision = Number(field(kv, "mod_revision"))
  }

  /** The targets that cover all open branches with few streams. */
  cover() {
    const open = []
    const visit = node => {
      open.push(node)
      for (const child of node.children) if (child.isOpen) visit(child)
    }
    visit(this.root)
    // Below a prefix, the branches above it may not be readable.
    const shown = this.base.length ? open.slice(1) : open
    const groups = shown.map(node => ({ names: node.names, isWhole: false }))
    while (groups.length > STREAMS_MAX) {
      // The two with the longest common beginning become one stream of everything below it.
      let best = [-1, 0, 1]
      for (let i = 0; i < groups.length; i++) {
        for (let j = i + 1; j < groups.length; j++) {
          const [a, b] = [groups[i].names, groups[j].names]
          let common = 0
          while (common < a.length && common < b.length && a[common] === b[common]) common++
          if (common > best[0]) best = [common, i, j]
        }
      }
      const [common, i, j] = best
      groups[i] = { names: groups[i].names.slice(0, common), isWhole: true }
      groups.splice(j, 1)
    }
    return groups
  }

  /** Begins and ends streams, so that every open branch is followed. A branch is loaded after that. */
  async follow() {
    if (this.at) return
    const target = group => `${targetOf("kv", group.names)}${group.isWhole ? "?recursive=true" : ""}`
    const wanted = new Map(this.cover().map(group => [target(group), group]))
    let isLate = false
    const begun = []
    for (const [target, group] of wanted) {
      if (this.streams.has(target)) continue
      begun.push(
        new Promise(resolve => {
          const stream = new Follow(target, {
            from: "now",
            group: changes => this.changes(group.names, changes),
            ready: () => {
              resolve()
              // Changes before it were not seen.
              if (isLate) this.reload()
            },
            denied: () => {
              resolve()
              this.poll()
            },
          })
          this.streams.set(target, stream)
        }),
      )
    }
    await Promise.race([Promise.all(begun), new Promise(resolve => setTimeout(resolve, READY_MS_MAX))])
    isLate = true
    // Only now: until the others have begun, these saw the changes.
    for (const [target, stream] of this.streams) {
      if (wanted.has(target)) continue
      stream.stop()
      this.streams.delete(target)
    }
  }

  /** Reads the open branches again and again: to follow them needs the right to all that is below, and to the key itself. */
  poll() {
    this.polling ??= setInterval(() => {
      if (!document.hidden && !this.isDenied) this.reload()
    }, POLL_INTERVAL_MS)
  }

  /** Reads the open branches again. What is shown stays until the new state is there. */
  async reload() {
    const visit = async node => {
      const fresh = new Node(node.name, node.parent)
      do await this.load(fresh)
      while (fresh.cursor && fresh.children.length < node.children.length)
      if (fresh.cursor === undefined) return
      node.children = fresh.children.map(child => {
        const known = node.byName.get(child.name)
        return known ? Object.assign(known, { isKey: child.isKey, revision: child.revision }) : child
      })
      for (const child of node.children) {
        child.isBranch ||= fresh.byName.get(child.name).isBranch
        child.parent = node
      }
      node.byName = new Map(node.children.map(child => [child.name, child]))
      node.cursor = fresh.cursor
      for (const child of node.children) if (child.isOpen) await visit(child)
    }
    this.isStale = true
    if (this.missed) return
    // Changes that come meanwhile may be newer than what is read.
    this.missed = []
    while (this.isStale && !this.signal.aborted) {
      this.isStale = false
      await visit(this.root)
    }
    const { missed } = this
    this.missed = null
    for (const [base, changes] of missed) this.changes(base, changes)
    this.draw()
  }

  changes(base, changes) {
    this.missed?.push([base, changes])
    for (const change of changes) {
      const names = [...base, ...(change.element ? change.element.split("/") : [])]
      const isGone = change.state === "DOES_NOT_EXIST"
      const kv = (change.data?.["@type"] ?? "").endsWith("mvccpb.KeyValue") ? change.data : null
      if (this.chosen && this.chosenPath === targetOf("kv", names)) this.touched(isGone ? null : kv)
      if (names.length === 0) {
        if (isGone) this.root.clear()
        continue
      }
      let parent = this.root
      for (const name of names.slice(0, -1)) parent = parent?.byName.get(name)
      if (!parent || parent.cursor === undefined) continue
      const name = names.at(-1)
      if (isGone) {
        parent.drop(name)
        continue
      }
      let node = parent.byName.get(name)
      if (!node) {
        const key = keyOfNames(names)
        const isLater = parent.cursor !== null && !isLess(key, parent.cursor)
        const begins = this.filter.every((byte, at) => at >= key.length || key[at] === byte)
        if (isLater || !begins) continue
        node = parent.child(name)
      }
      if (kv) this.put(node, kv)
      else {
        node.isBranch = true
        node.isKey = false
      }
      node.changed = performance.now()
    }
    this.recount()
    this.draw()
  }

  /** Counts again after changes. Changes deep below closed branches are not seen, so the number may be older. */
  recount() {
    this.counting ??= setTimeout(async () => {
      this.counting = null
      try {
        const from = this.filter.length ? this.filter : Uint8Array.of(0)
        const answer = await rpc(
          "/v3/kv/range",
          { key: toBase64(from), range_end: toBase64(endOf(this.filter)), count_only: true },
          { signal: this.signal },
        )
        this.total = Number(answer.count ?? 0)
        this.draw()
      } catch {
        // The next change counts again.
      }
    }, RECOUNT_MS)
  }

  async narrow() {
    this.filter = utf8(this.search.value)
    this.root.clear()
    this.isDenied = false
    await this.follow()
    await this.load(this.root)
    // The branches of the prefix are open.
    let node = this.root
    for (const name of this.base) {
      node = node.byName.get(name)
      if (!node) return
      node.isOpen = true
      await this.load(node)
    }
    await this.follow()
  }

  /** The names of the branches that the filter names in full. */
  get base() {
    const end = this.filter.lastIndexOf(SLASH)
    return end < 0 ? [] : namesOfKey(this.filter.subarray(0, end))
  }

  flatten() {
    const rows = []
    const visit = node => {
      for (const child of node.children) {
        rows.push(child)
        if (child.isOpen) visit(child)
      }
    }
    visit(this.root)
    this.rows = rows
    const { root } = this
    if (!rows.length && (root.cursor === null || this.isDenied) && !root.loading) this.showEmpty()
    else this.replaceList(null)
    this.count.textContent = root.loading
      ? "Loading…"
      : `${number(this.total ?? 0)} keys${this.filter.length ? " with this prefix" : ""}`
    this.list.chosen = this.chosen ? rows.indexOf(this.chosen) : -1
    this.list.update(rows.length)
  }

  showEmpty() {
    if (this.blank) return
    const text = this.isDenied
      ? empty("Not all keys may be read", "Type a prefix that you may read, such as app/.")
      : this.filter.length
        ? empty("No such key", `No key begins with ${this.search.value}.`)
        : empty(
            "No keys",
            this.at ? "There were none at this moment." : "Keys are etcd's and Consul's alike.",
            ...(this.at
              ? []
              : [
                  "headwater put greeting hello",
                  "etcdctl put app/config '{\"debug\": true}'",
                  `curl -X PUT -d hello ${location.origin}/v1/kv/web/motd`,
                ]),
          )
    this.replaceList(text)
  }

  more() {
    const last = this.rows.at(-1)
    for (let node = last?.parent; node; node = node.parent) if (node.cursor) return this.load(node)
  }

  row(row, index) {
    const node = this.rows[index]
    if (!node) return
    row.setAttribute("aria-level", node.depth + 1)
    if (node.isBranch) row.setAttribute("aria-expanded", node.isOpen)
    else row.removeAttribute("aria-expanded")
    row.style.setProperty("--depth", node.depth)
    const age = performance.now() - node.changed
    row.classList.toggle("fresh", node.changed > 0 && age < FRESH_MS)
    const twist = h(
      "span.twist",
      { class: node.isOpen ? "open" : "", "aria-hidden": "true" },
      node.isBranch && icon("open"),
    )
    fill(
      row,
      twist,
      h(
        "span.name",
        { class: node.isKey ? "" : "branch" },
        node.name === "~" && node.isBranch ? "" : label(node.name),
        node.isBranch && h("span.slash", null, "/"),
      ),
      h("span.note", null, node.isKey ? `r${node.revision}` : ""),
    )
  }

  choose(index, event) {
    const node = this.rows[index]
    if (node.isBranch && (!node.isKey || event?.target?.closest?.(".twist"))) this.toggle(node)
    else location.hash = `#/keys/${node.names.map(encodeURIComponent).join("/")}`
  }

  key(event, index) {
    const node = this.rows[index]
    if (event.key === "ArrowRight" && node.isBranch && !node.isOpen) this.toggle(node)
    else if (event.key === "ArrowLeft" && node.isOpen) this.toggle(node)
    else if (event.key === "ArrowLeft" && node.parent !== this.root) this.list.select(this.rows.indexOf(node.parent))
    else return false
    return true
  }

  async toggle(node) {
    node.isOpen = !node.isOpen
    if (!node.isOpen) node.clear()
    this.draw()
    await this.follow()
    if (node.isOpen) await this.load(node)
  }

  // ---- one key

  /** Shows the key of the address; takes part in navigation without building the page anew. */
  move(parts) {
    this.chosenPath = parts.length ? targetOf("kv", parts) : null
    this.names = parts
    this.split.classList.toggle("has-detail", parts.length > 0)
    if (!parts.length) {
      this.chosen = null
      this.hint("Choose a key to see its value, its versions and its lease.")
    } else this.open(parts)
    this.draw()
    return true
  }

  async open(parts) {
    this.editing = null
    this.shownRevision = 0
    this.chosen = { names: parts }
    fill(this.detail, this.head())
    this.refresh()
    await this.begun
    // Opens the branches above it.
    let parent = this.root
    for (const name of parts.slice(0, -1)) {
      const child = parent.child(name)
      child.isBranch = true
      if (!child.isOpen) {
        child.isOpen = true
        await this.load(child)
      }
      parent = child
    }
    if (this.names !== parts) return
    this.chosen = parent.byName.get(parts.at(-1)) ?? this.chosen
    this.flatten()
    if (this.list.chosen >= 0) this.list.scrollTo(this.list.chosen)
    await this.follow()
  }

  async refresh() {
    const path = this.chosenPath
    const key = keyOfNames(this.names)
    try {
      const answer = await rpc("/v3/kv/range", { key: toBase64(key), ...this.revision() }, { signal: this.signal })
      // Meanwhile another key may have been chosen, an edit begun, or a newer version shown.
      const kv = answer.kvs?.[0]
      const isOld = kv && Number(field(kv, "mod_revision")) < this.shownRevision
      if (this.chosenPath === path && !this.editing && !isOld) this.showKey(key, kv)
    } catch (error) {
      if (this.chosenPath === path) fill(this.detail, this.head(), h("p.problem", null, error.message))
      if (error.name !== "AbortError") fail(error)
    }
  }

  /** The chosen key was changed; `kv` is null if it was removed. */
  touched(kv) {
    const revision = kv ? Number(kv.modRevision) : Infinity
    if (this.shownRevision >= revision) return
    if (this.editing) {
      fill(this.editing, kv ? `Changed meanwhile, at revision ${revision}.` : "Removed meanwhile.")
      return
    }
    if (kv) this.showKey(keyOfNames(this.names), kv, true)
    else this.showKey(keyOfNames(this.names), null)
  }

  head() {
    const text = asText(keyOfNames(this.names)) ?? this.names.join("/")
    return h(
      "header",
      null,
      h("a.back", { href: "#/keys", "aria-label": "Back to the tree" }, icon("back")),
      h("h1.path", null, text),
      copyButton(text, "Copy the key"),
    )
  }

  showKey(key, kv, isFresh) {
    this.shownRevision = kv ? Number(field(kv, "mod_revision")) : 0
    const text = asText(key) ?? hexDump(key)
    if (!kv) {
      fill(
        this.detail,
        this.head(),
        h("p", null, this.at ? "This key did not exist at this moment." : "There is no such key."),
        !this.at && this.versions(key, null),
      )
      return
    }
    const value = fromBase64(kv.value)
    const lease = field(kv, "lease")
    const left = h("span.note", null)
    const actions =
      this.canWrite &&
      h(
        "div.actions",
        null,
        h("button.button.small", { type: "button", "data-key": "e", onclick: () => this.edit(key, kv) }, "Edit"),
        button("Delete", () => this.remove(key, kv), { kind: "small danger" }),
      )
    const show = [
      ["Value", () => valueView(value)],
      ["Versions", () => this.versions(key, kv)],
    ]
    const selected =
      this.detail.querySelector(".key-tabs [role=tab][aria-selected=true]")?.textContent === "Versions" ? 1 : 0
    const view = tabs("Parts of the key", show, { selected: isFresh ? selected : 0 })
    view.classList.add("key-tabs")
    fill(
      this.detail,
      this.head(),
      actions || "",
      facts([
        ["Revision", field(kv, "mod_revision")],
        ["Created", field(kv, "create_revision")],
        ["Version", kv.version],
        lease &&
          lease !== "0" && [
            "Lease",
            h("a", { href: `#/leases/${BigInt(lease).toString(16).padStart(16, "0")}` }, BigInt(lease).toString(16)),
            left,
          ],
      ]),
      view,
      h(
        "div.command",
        null,
        h("code", null, `headwater get '${text}'`),
        copyButton(`headwater get '${text}'`, "Copy the command"),
      ),
    )
    if (isFresh) {
      view.classList.add("fresh")
      setTimeout(() => view.classList.remove("fresh"), FRESH_MS)
    }
    if (lease && lease !== "0" && !this.at) this.lease(lease, left)
  }

  async lease(id, left) {
    try {
      const answer = await rpc("/v3/lease/timetolive", { ID: id }, { signal: this.signal })
      left.textContent = ` ${duration(Number(answer.TTL ?? 0))} of ${duration(Number(field(answer, "grantedTTL") ?? 0))} left`
    } catch {
      left.textContent = " ended"
    }
  }

  /** The versions of a key, two of them side by side. */
  versions(key, kv) {
    const box = h("div.versions", null, h("p.note", null, "Loading…"))
    this.readVersions(key, kv, box)
    return box
  }

  async readVersions(key, kv, box) {
    const path = keyPath(key)
    const all = []
    try {
      const from = this.at ? { index: String(this.at.index) } : undefined
      const found = await commands(
        { targets: [`${path}?children=false`], direction: "BACKWARD", limit: String(VERSIONS), from },
        this.signal,
      )
      for (const command of found.commands) {
        for (const change of command.changes ?? []) all.push({ command, change })
      }
    } catch (error) {
      fill(box, h("p.problem", null, error.message))
      return
    }
    if (!all.length) {
      fill(
        box,
        h("p.note", null, kv ? "Its last change is older than the history that is kept." : "It has no history."),
      )
      return
    }
    const lines = entity => (entity ? comparable(valueOf(entity) ?? new Uint8Array()) : [])
    const states = all.map(({ command, change }) => ({
      command,
      after: change.after,
      sign: signOf(change),
      expired: change.expired,
    }))
    const oldest = all.at(-1).change.before
    if (oldest) states.push({ command: null, after: oldest, sign: "", index: 0 })
    const name = state =>
      state.command ? `Revision ${state.command.revision}, ${time(field(state.command, "unix_ms"))}` : "Before that"
    const options = chosen =>
      states.map((state, at) =>
        h("option", { value: String(at), selected: at === chosen }, `${name(state)}${state.after ? "" : " (removed)"}`),
      )
    const left = h(
      "select",
      { "aria-label": "Older version", onchange: () => compare() },
      options(Math.min(1, states.length - 1)),
    )
    const right = h("select", { "aria-label": "Newer version", onchange: () => compare() }, options(0))
    const result = h("div", null)
    const compare = () => {
      const [a, b] = [states[left.value], states[right.value]]
      fill(result, sideBySide(lines(a.after), lines(b.after), [name(a), name(b)]))
    }
    compare()
    const what = { "+": "created", "~": "changed", "−": "removed" }
    fill(
      box,
      h("div.toolbar", null, left, h("span", { "aria-hidden": "true" }, "→"), right),
      result,
      h(
        "table.plain",
        null,
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            ["When", "Revision", "What", "By", "Through"].map(title => h("th", { scope: "col" }, title)),
          ),
        ),
        h(
          "tbody",
          null,
          states
            .filter(state => state.command)
            .map(({ command, sign, expired }) =>
              h(
                "tr",
                null,
                h("td", null, time(field(command, "unix_ms"))),
                h("td", null, h("a", { href: `#/history/${command.index}` }, command.revision || command.index)),
                h("td", null, expired ? "lease ended" : what[sign]),
                h("td", null, command.author || "anonymous"),
                h("td", null, command.face || ""),
              ),
            ),
        ),
      ),
    )
  }

  // ---- changes

  /** Asks for a value, as text or as hexadecimal digits. */
  form(initial, submit, { name } = {}) {
    const isText = initial === null || asText(initial) !== null
    const area = h("textarea", {
      "aria-label": isText ? "Value" : "Value in hexadecimal digits",
      rows: 14,
      spellcheck: false,
    })
    area.value =
      initial === null
        ? ""
        : isText
          ? asText(initial)
          : Array.from(initial, byte => byte.toString(16).padStart(2, "0")).join(" ")
    const problem = h("p.problem", { role: "alert" })
    const form = h(
      "form.editor",
      {
        onsubmit: async event => {
          event.preventDefault()
          try {
            const digits = area.value.replace(/\s/g, "")
            if (!isText && (!/^[0-9a-f]*$/i.test(digits) || digits.length % 2))
              throw new Error("These are no pairs of hexadecimal digits.")
            await submit(
              isText ? utf8(area.value) : Uint8Array.from(digits.match(/../g) ?? [], pair => parseInt(pair, 16)),
              name?.value,
            )
          } catch (error) {
            problem.textContent = error.message
          }
        },
        onkeydown: event => (event.ctrlKey || event.metaKey) && event.key === "Enter" && form.requestSubmit(),
      },
      name && h("label", null, "Key", name),
      area,
      problem,
    )
    return form
  }

  edit(key, kv) {
    const notice = h("p.notice", { role: "status" })
    const form = this.form(fromBase64(kv.value), value => this.save(key, kv, value))
    form.append(
      notice,
      h(
        "footer",
        null,
        button("Cancel", () => this.endEdit()),
        h("button.button.primary", { type: "submit" }, "Save"),
        h("span.note", null, `Saved only if it is still at revision ${field(kv, "mod_revision")}.`),
      ),
    )
    this.editing = notice
    this.detail.querySelector(".key-tabs").replaceWith(form)
    this.detail.querySelector(".actions").hidden = true
    form.querySelector("textarea").focus()
  }

  endEdit() {
    this.editing = null
    this.refresh()
  }

  async save(key, kv, value) {
    const encoded = toBase64(key)
    const revision = field(kv, "mod_revision")
    const answer = await rpc("/v3/kv/txn", {
      compare: [{ key: encoded, target: "MOD", result: "EQUAL", mod_revision: revision }],
      success: [{ request_put: { key: encoded, value: toBase64(value), ignore_lease: true } }],
      failure: [{ request_range: { key: encoded } }],
    })
    if (answer.succeeded) {
      say(`Saved at revision ${answer.header?.revision}`)
      this.endEdit()
      return
    }
    const theirs = answer.responses?.[0]?.response_range?.kvs?.[0]
    const overwrite = await dialog(
      "Changed meanwhile",
      close => [
        h(
          "p",
          null,
          theirs ? `The key is at revision ${field(theirs, "mod_revision")} by now.` : "The key was removed meanwhile.",
        ),
        sideBySide(theirs ? comparable(fromBase64(theirs.value)) : [], comparable(value), ["Stored now", "Yours"]),
        h(
          "footer",
          null,
          button("Keep editing", () => close(false)),
          theirs && button("Write mine over it", () => close(true), { kind: "danger" }),
        ),
      ],
      { wide: true },
    )
    if (overwrite) await this.save(key, theirs, value)
  }

  async remove(key, kv) {
    if (!(await confirm("Delete this key?", asText(key) ?? "A key that is no text", "Delete"))) return
    try {
      const encoded = toBase64(key)
      const answer = await rpc("/v3/kv/txn", {
        compare: [{ key: encoded, target: "MOD", result: "EQUAL", mod_revision: field(kv, "mod_revision") }],
        success: [{ request_delete_range: { key: encoded } }],
      })
      if (answer.succeeded) say("Deleted. History can bring it back.")
      else throw new Error("The key was changed meanwhile; nothing was deleted.")
      this.refresh()
    } catch (error) {
      fail(error)
    }
  }

  async create() {
    await dialog("New key", close => {
      const name = h("input", { required: true, value: this.search.value, spellcheck: false })
      const form = this.form(
        null,
        async value => {
          const key = utf8(name.value)
          const encoded = toBase64(key)
          const answer = await rpc("/v3/kv/txn", {
            compare: [{ key: encoded, target: "VERSION", result: "EQUAL", version: "0" }],
            success: [{ request_put: { key: encoded, value: toBase64(value) } }],
          })
          if (!answer.succeeded) throw new Error("There is such a key already.")
          close()
          location.hash = `#/keys/${namesOfKey(key).map(encodeURIComponent).join("/")}`
        },
        { name },
      )
      form.append(
        h(
          "footer",
          null,
          button("Cancel", () => close()),
          h("button.button.primary", { type: "submit" }, "Create"),
        ),
      )
      return form
    })
  }

  stop() {
    clearInterval(this.polling)
    for (const stream of this.streams.values()) stream.stop()
    super.stop()
  }
}

export const keys = opens(Keys)
