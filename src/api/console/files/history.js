// The history: every change of everything as it happens, two moments compared, and undoing.

import { field, rpc, toBase64 } from "./api.js"
import { button, copyButton, dialog, empty, facts, fail, fill, h, icon, number, paced, pill, say, time } from "./dom.js"
import { FollowHistory } from "./follow.js"
import { cells } from "./list.js"
import { ListPage, opens } from "./page.js"
import { commands, label, namesOf, net, pageOf, resolve, signOf } from "./store.js"
import { operations } from "./undo.js"
import { entityLines, sideBySide } from "./value.js"

const ROWS_MAX = 5000
const PAGE = 100
const SHOWN_MAX = 50
// Changes of one command that are loaded with their states. A commit that undoes them could not have more.
const LOADED_MAX = 1000
const COMPARED_MAX = 20000
const FACES = ["etcd", "consul", "resource", "store", "etcd-early", "headwater", "node"]

// Parts of a name in the spaces that are trees.
const DEPTHS = { kv: Infinity, services: 3, resources: 6 }

const WORDS = { "+": "created", "~": "changed", "−": "removed" }

/** A path as people read it. */
function readable(path) {
  const [space, names] = namesOf(path)
  return `${space}/${names.map(label).join("/")}`
}

function sign(change) {
  const name = signOf(change)
  return h("span.sign-of", { class: { "+": "added", "−": "removed", "~": "changed" }[name], title: WORDS[name] }, name)
}

class History extends ListPage {
  newer = []
  older = []
  held = []
  reachedEnd = false

  constructor(main, context) {
    super(context)
    this.face = h(
      "select",
      { "aria-label": "Changes through this API", onchange: () => this.begin() },
      h("option", { value: "" }, "All APIs"),
      FACES.map(face => h("option", { value: face }, face)),
    )
    this.pauseButton = h(
      "button.button.small",
      { type: "button", "data-key": "p", "aria-pressed": "false", onclick: () => this.pause(!this.isPaused) },
      "Pause",
    )
    this.rate = h("span.note", { title: "Commands a second" })
    this.problem = h("p.problem", { role: "alert" })
    this.build(main, {
      list: {
        label: "Changes",
        roles: ["grid", "row"],
        columns: [
          ["Time", "7.4rem"],
          ["Index", "3.6rem", "wide number"],
          ["Change", "minmax(8rem, 1fr)"],
          ["By", "minmax(4rem, 6rem)", "wide"],
          ["Through", "5.5rem", "wide"],
        ],
        near: () => this.loadOlder(),
        render: (row, index) => this.row(row, this.command(index)),
        choose: index => {
          location.hash = this.address(this.command(index)?.index)
        },
      },
      search: {
        placeholder: "/kv/app?recursive=true",
        "aria-label": "Changes below this path",
        value: context.query.get("target") ?? "",
        oninput: () => this.begin(),
        wait: 300,
      },
      detail: "Change",
      tools: search => [search, this.face, !this.at && this.pauseButton, this.rate],
      above: this.problem,
      split: ".even",
    })
    // Many changes a second move every row: ten times a second is enough to follow them.
    this.draw = paced(() => this.show(), 100)
    this.begin()
    this.move(context.parts, context.query)
  }

  command(index) {
    return index < this.newer.length ? this.newer[this.newer.length - 1 - index] : this.older[index - this.newer.length]
  }

  /** The path of the filter as a target; a space is followed as a whole. */
  get targets() {
    const text = this.search.value.trim()
    if (!text) return undefined
    const path = text.startsWith("/") ? text : `/${text}`
    const [space, names] = namesOf(path)
    const isWhole = path.includes("?") || !(names.length < DEPTHS[space])
    return [isWhole ? path : `${path.replace(/\/$/, "")}?recursive=true`]
  }

  get request() {
    return { targets: this.targets, faces: this.face.value ? [this.face.value] : undefined, paths_only: true }
  }

  address(index) {
    return `#/history${index ? `/${index}` : ""}${this.search.value ? `?target=${encodeURIComponent(this.search.value)}` : ""}`
  }

  async begin() {
    this.stream?.stop()
    this.newer = []
    this.older = []
    this.held = []
    this.reachedEnd = false
    this.problem.textContent = ""
    const round = (this.round = Symbol())
    try {
      const now = this.at ?? (await resolve(null, this.signal))
      if (round !== this.round) return
      this.lowest = Number(now.index) + 1
      await this.loadOlder()
      if (round !== this.round || this.at) return
      this.follow(String(now.index))
    } catch (error) {
      if (round === this.round && error.name !== "AbortError") this.problem.textContent = error.message
    }
    this.draw()
  }

  follow(from) {
    this.stream = new FollowHistory(this.request, {
      from,
      commands: list => this.arrived(list),
      restart: () => this.begin(),
      denied: error => {
        this.problem.textContent = error.message
      },
    })
    this.measuring ??= setInterval(() => {
      this.rate.textContent = `${number(this.seen ?? 0)}/s`
      this.seen = 0
    }, 1000)
  }

  arrived(list) {
    this.seen = (this.seen ?? 0) + list.length
    const into = this.isPaused ? this.held : this.newer
    into.push(...list)
    if (into.length > ROWS_MAX) into.splice(0, into.length - ROWS_MAX)
    if (!this.isPaused) {
      if (this.newer.length >= ROWS_MAX) {
        this.older = []
        this.reachedEnd = false
        this.lowest = Number(this.newer[0].index)
      }
      this.list.shift(list.length)
    }
    this.draw()
  }

  pause(isPaused) {
    this.isPaused = isPaused
    this.pauseButton.setAttribute("aria-pressed", String(isPaused))
    if (!isPaused) {
      const list = this.held
      this.held = []
      if (list.length) this.arrived(list)
    }
    this.draw()
  }

  async loadOlder() {
    if (this.isLoading || this.reachedEnd || !this.lowest) return
    this.isLoading = true
    const round = this.round
    try {
      const found = await commands(
        { ...this.request, direction: "BACKWARD", limit: String(PAGE), from: { index: String(this.lowest - 1) } },
        this.signal,
      )
      if (round === this.round) {
        this.older.push(...found.commands)
        if (found.commands.length) this.lowest = Number(found.commands.at(-1).index)
        this.oldest = found.oldest
        this.reachedEnd = found.commands.length < PAGE || this.lowest <= 1
      }
    } catch (error) {
      if (error.name !== "AbortError" && round === this.round) {
        this.problem.textContent = error.message
        this.reachedEnd = true
      }
    }
    this.isLoading = false
    this.draw()
  }

  show() {
    const count = this.newer.length + this.older.length
    this.list.update(count)
    this.pauseButton.textContent = this.isPaused
      ? `Continue${this.held.length ? ` (${number(this.held.length)} new)` : ""}`
      : "Pause"
    this.count.textContent = !this.reachedEnd
      ? `${number(count)} commands, more below`
      : `${number(count)} commands${this.oldest ? `, after index ${number(this.oldest)}: older ones are not kept` : ", from the beginning on"}`
    const instead = () =>
      this.search.value || this.face.value
        ? empty("Nothing fits", "No change that is kept is below this path and through this API.")
        : empty(
            "No changes yet",
            "Every change of keys, services, resources, leases and members appears here.",
            "headwater put greeting hello",
          )
    this.replaceList(!count && this.reachedEnd && instead())
  }

  row(row, command) {
    if (!command) return
    const changes = (command.changes ?? []).filter((change, at, all) => all.length === 1 || !isImplied(change))
    const [first] = changes.length ? changes : (command.changes ?? [])
    row.classList.toggle("chosen", command.index === this.index)
    cells(row, this.columns, [
      time(field(command, "unix_ms"), { millis: true }),
      command.index,
      first
        ? [
            sign(first),
            " ",
            readable(first.path),
            first.expired && pill("lease ended"),
            changes.length > 1 && h("span.note", null, ` and ${number(changes.length - 1)} more`),
          ]
        : "",
      command.author || h("span.note", null, "anonymous"),
      command.face ? pill(command.face) : "",
    ])
  }

  // ---- one command, or a comparison

  move(parts, query) {
    if (parts[0] === "compare" || (query.get("target") ?? "") !== this.search.value) return false
    this.index = parts[0]
    this.split.classList.toggle("has-detail", Boolean(this.index))
    if (this.index) this.open(this.index)
    else
      this.hint(
        "Choose a change to see it, to go to its moment, or to undo it. The slider above turns every page to a moment of the past.",
      )
    this.draw()
    return true
  }

  async open(index) {
    try {
      const found = await commands({ direction: "BACKWARD", limit: "1", from: { index } }, this.signal, LOADED_MAX)
      const whole = found.commands.find(command => command.index === index)
      if (this.index !== index) return
      fill(this.detail, this.commandView(index, whole && { ...whole, epoch: found.epoch }))
    } catch (error) {
      if (error.name !== "AbortError") fill(this.detail, h("p.problem", null, error.message))
    }
  }

  commandView(index, command) {
    const head = h(
      "header",
      null,
      h("a.back", { href: this.address(), "aria-label": "Back to the list" }, icon("back")),
      h("h1", null, `Index ${number(index)}`),
    )
    if (!command) return [head, h("p", null, "There is no change at this index, or it is not kept any more.")]
    const changes = command.changes ?? []
    return [
      head,
      h(
        "div.actions",
        null,
        button("The moment before", () => this.bar.go({ index: String(Number(index) - 1) }), { kind: "small" }),
        button("This moment", () => this.bar.go({ index }), { kind: "small" }),
        h("a.button.small", { href: `#/history/compare?from=${Number(index) - 1}` }, "Compare before with now"),
        this.settings.ui === "write" &&
          !this.at &&
          !command.isPart &&
          button("Undo this", () => this.undo(command), { kind: "small danger" }),
      ),
      facts([
        ["Time", time(field(command, "unix_ms"), { millis: true })],
        command.revision && command.revision !== "0" && ["Revision", command.revision],
        ["By", command.author || "anonymous"],
        ["Through", command.face || "unknown"],
      ]),
      changes.slice(0, SHOWN_MAX).map(changeView),
      changes.length > SHOWN_MAX &&
        h("p.note", null, `and ${command.isPart ? "more than " : ""}${number(changes.length - SHOWN_MAX)} more`),
    ]
  }

  async undo(command) {
    const changes = (command.changes ?? []).filter(change => !isImplied(change))
    // Each entity must be as this command has left it.
    const condition = change => ({ target: change.path, index: change.after?.index ?? "0", epoch: command.epoch })
    const max = this.settings.max_txn_ops
    await undo(`Undo index ${number(command.index)}?`, { changes, condition, max })
  }

  stop() {
    clearInterval(this.measuring)
    super.stop()
  }
}

/**
 * Whether a change follows from others: of a directory, from what is below it; of a tombstone, from the deletion whose
 * rest the store carries out.
 */
function isImplied({ path, before, after }) {
  return path.startsWith("/resources/internal/") || (before ?? after)?.data?.["@type"]?.endsWith("protobuf.Empty")
}

function changeView(change) {
  const page = pageOf(change.path)
  const [a, b] = [entityLines(change.before), entityLines(change.after)]
  return h(
    "article.change",
    null,
    h(
      "header",
      null,
      sign(change),
      page ? h("a", { href: page }, readable(change.path)) : readable(change.path),
      change.expired && pill("lease ended"),
      copyButton(change.path, "Copy the path"),
    ),
    !isImplied(change) &&
      (change.before && change.after
        ? sideBySide(a, b, ["Before", "After"])
        : (change.before || change.after) &&
          h(
            "pre.value",
            { tabindex: "0", class: change.after ? "added" : "removed" },
            (change.after ? b : a).join("\n"),
          )),
  )
}

/** The change that gives the earlier state back. */
function reversed(change) {
  const kind = { CREATED: "REMOVED", REMOVED: "CREATED" }[change.kind] ?? change.kind
  return { ...change, kind, before: change.after, after: change.before }
}

/**
 * Shows what undoing does, asks, and commits it. `condition` gives what must still hold of an entity; `max` is the number of
 * operations that a commit takes. Returns whether it was done.
 */
async function undo(title, { changes, all, condition, max = Infinity }) {
  const { list, undone, conditional, skipped } = operations(changes, all)
  const isTooMuch = conditional.length > max
  const text = !list.length
    ? "There is nothing that can be undone."
    : isTooMuch
      ? `${number(conditional.length)} entities are too many for one commit: this node takes ${number(max)} (max-txn-ops). ` +
        "Compare the moment before with now, and undo a part of it: the path chooses one."
      : `${number(list.length)} ${list.length === 1 ? "entity gets its" : "entities get their"} earlier state back in one commit. ` +
        "If one was changed meanwhile, nothing is done."
  const answer = await dialog(
    title,
    close => [
      h("p", null, text),
      skipped.slice(0, 5).map(({ path, why }) => h("p.notice", null, `${readable(path)} stays as it is: ${why}.`)),
      skipped.length > 5 && h("p.note", null, `and ${number(skipped.length - 5)} more stay as they are`),
      undone.slice(0, 20).map(change => changeView(reversed(change))),
      undone.length > 20 && h("p.note", null, `and ${number(undone.length - 20)} more`),
      h(
        "footer",
        null,
        button("Cancel", () => close(false)),
        list.length > 0 && !isTooMuch && button("Undo", () => close(true), { kind: "danger" }),
      ),
    ],
    { wide: true },
  )
  if (!answer) return false
  try {
    const result = await rpc("/v1/store/commit", {
      conditions: conditional.map(condition),
      operations: list,
      idempotency_key: toBase64(crypto.getRandomValues(new Uint8Array(16))),
    })
    say(`Undone at index ${result.index}`)
    return true
  } catch (error) {
    // The refusal has the number of the condition or operation.
    const [, part, at] = /^(conditions|operations)\[(\d+)\]/.exec(error.message) ?? []
    const path = part && readable((part === "conditions" ? conditional : undone)[at].path)
    if (part === "conditions") fail(new Error(`${path} was changed meanwhile. Nothing was undone.`))
    else fail(path ? new Error(`${path}: ${error.message}. Nothing was undone.`) : error)
    return false
  }
}

/** Two moments side by side: everything that differs. */
class Comparison extends ListPage {
  changes = []

  constructor(main, context) {
    super(context)
    this.from = context.query.get("from")
    this.to = context.query.get("to")
    this.title = h("span.note", null)
    this.undoButton =
      context.settings.ui === "write" && !this.to
        ? button("Undo all of these", () => this.undo(), { kind: "small danger" })
        : ""
    this.build(main, {
      list: {
        label: "Differences",
        roles: ["grid", "row"],
        columns: [
          ["", "1.5rem"],
          ["What", "1fr"],
        ],
        render: (row, index) =>
          this.rows[index] && cells(row, this.columns, [sign(this.rows[index]), readable(this.rows[index].path)]),
        choose: index => {
          this.list.select(index)
          this.open(this.rows[index])
        },
      },
      search: {
        placeholder: "Path",
        "aria-label": "Differences with this path",
        value: context.query.get("target") ?? "",
        oninput: () => this.show(),
      },
      detail: "Difference",
      tools: search => [h("a.button.small", { href: "#/history" }, "History"), this.title, search, this.undoButton],
      split: ".even",
    })
    this.count.textContent = "Comparing…"
    this.hint("Choose an entity to see both of its states.")
    this.load()
  }

  async load() {
    try {
      const [a, b] = await Promise.all([
        resolve({ index: this.from }, this.signal),
        resolve(this.to ? { index: this.to } : null, this.signal),
      ])
      this.b = b
      this.title.textContent = `${time(a.ms)} → ${this.to ? time(b.ms) : "now"}`
      const found = await commands(
        { from: { index: this.from }, to: { index: String(b.index) }, limit: String(COMPARED_MAX) },
        this.signal,
      )
      this.isPart = found.commands.length >= COMPARED_MAX
      this.changes = net(found.commands)
      this.show()
    } catch (error) {
      if (error.name !== "AbortError") fill(this.count, h("span.problem", null, error.message))
    }
  }

  show() {
    const text = this.search.value.trim().toLowerCase().replace(/^\//, "")
    this.rows = this.changes.filter(change => !text || readable(change.path).toLowerCase().includes(text))
    this.list.update(this.rows.length)
    this.count.textContent = `${number(this.rows.length)} entities differ${this.isPart ? `, of the first ${number(COMPARED_MAX)} commands` : ""}`
    if (this.undoButton) this.undoButton.disabled = !this.rows.length || this.isPart
    if (this.rows.length) {
      this.list.select(0)
      this.open(this.rows[0])
    } else fill(this.detail, empty("No difference", "Both moments have the same content here."))
  }

  open(change) {
    this.present(h("h1.path", null, readable(change.path)), changeView(change))
  }

  async undo() {
    const { index, epoch } = this.b
    const condition = change => ({ target: change.path, unchanged_since: String(index), epoch })
    const what = { changes: this.rows, all: this.changes, condition, max: this.settings.max_txn_ops }
    if (await undo(`Undo ${number(this.rows.length)} differences?`, what)) location.hash = "#/history"
  }
}

export const history = (main, context) => opens(context.parts[0] === "compare" ? Comparison : History)(main, context)
