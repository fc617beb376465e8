// Leases, the locks and elections that stand on them, and Consul's sessions.

import { asText, field, fromBase64, pause, rpc, send, toBase64 } from "./api.js"
import { button, choice, confirm, duration, empty, facts, fail, h, number, paced, say } from "./dom.js"
import { Follow } from "./follow.js"
import { cells } from "./list.js"
import { ListPage, opens } from "./page.js"
import { keyPath, pageOf } from "./store.js"

// Leases that are asked for their keys, how many at once, and how often.
const ASKED_MAX = 500
const AT_ONCE = 3
const ASK_INTERVAL_MS = 5000
const TICK_MS = 1000

const idOf = id => BigInt.asUintN(64, BigInt(id)).toString(16).padStart(16, "0")
const short = id => id.replace(/^0+(?=.)/, "")

class Leases extends ListPage {
  leases = new Map()
  rows = []
  sessions = []

  constructor(main, context) {
    super(context)
    this.view = ["locks", "sessions"].includes(context.parts[0]) ? context.parts[0] : "leases"
    this.id = this.view === "leases" ? context.parts[0] : undefined
    const columns = {
      leases: [
        ["Lease", "11rem"],
        ["Time left", "minmax(9rem, 1.5fr)"],
        ["Granted", "6rem", "number"],
        ["Keys", "minmax(4rem, 2fr)", "wide"],
      ],
      locks: [
        ["Lock or election", "minmax(8rem, 2fr)"],
        ["Holder", "minmax(7rem, 2fr)"],
        ["Token", "5rem", "number"],
        ["Waiting", "5rem", "wide number"],
        ["Time left", "minmax(8rem, 1fr)", "wide"],
      ],
      sessions: [
        ["Session", "minmax(8rem, 2fr)"],
        ["Node", "minmax(5rem, 1fr)"],
        ["TTL", "5rem", "number"],
        ["Behaviour", "6rem", "wide"],
        ["Id", "minmax(6rem, 2fr)", "wide"],
      ],
    }[this.view]
    const labels = { leases: "Leases", locks: "Locks and elections", sessions: "Sessions" }
    const kind = choice("Kind", Object.entries(labels), this.view, view => {
      location.hash = view === "leases" ? "#/leases" : `#/leases/${view}`
    })
    this.build(main, {
      list: {
        label: labels[this.view],
        roles: ["grid", "row"],
        columns,
        height: 30,
        render: (row, index) => this.row(row, this.rows[index]),
        choose: index => this.choose(this.rows[index]),
      },
      search: { placeholder: "Filter", "aria-label": `${labels[this.view]} with this text` },
      detail: "Lease",
      tools: search => [search, kind],
    })
    this.split.classList.toggle("has-detail", Boolean(this.id))
    this.draw = paced(() => this.show(), 100)
    if (!this.id) this.hint("Choose a row to see what stands on it.")
    if (this.view === "sessions") this.watchSessions()
    else if (this.at) this.past(["/leases"], entities => this.showPast(entities))
    else {
      this.stream = new Follow("/leases", { group: (changes, isState) => this.apply(changes, isState), denied: fail })
      this.ask()
    }
    this.ticking = setInterval(this.draw, TICK_MS)
  }

  showPast(entities) {
    this.apply(
      entities.map(({ path, data }) => ({ element: path.split("/").at(-1), data })),
      true,
    )
    if (this.view === "locks")
      this.hint("Queues of locks are shown for now only. Their keys are in Keys, at this moment, too.")
  }

  apply(changes, isState) {
    if (isState) this.leases.clear()
    for (const { element, state, data } of changes) {
      if (!element) {
        if (state === "DOES_NOT_EXIST") this.leases.clear()
      } else if (state === "DOES_NOT_EXIST") this.leases.delete(element)
      else if (field(data, "ID")) {
        const known = this.leases.get(element)
        this.leases.set(element, { ...known, id: element, number: data.ID, granted: Number(data.TTL ?? 0) })
      }
    }
    this.isReady = true
    this.draw()
  }

  /** Asks the leases for their time and their keys, a few at once, again and again. */
  async ask() {
    while (!this.signal.aborted) {
      const queue = [...this.leases.values()].slice(0, ASKED_MAX)
      const chosen = this.leases.get(this.id)
      if (chosen && !queue.includes(chosen)) queue.push(chosen)
      const worker = async () => {
        for (let lease; !this.signal.aborted && (lease = queue.shift());) {
          try {
            const answer = await rpc("/v3/lease/timetolive", { ID: lease.number, keys: true }, { signal: this.signal })
            const known = this.leases.get(lease.id)
            if (known)
              Object.assign(known, {
                left: Number(answer.TTL ?? 0),
                askedAt: performance.now(),
                keys: (answer.keys ?? []).map(fromBase64),
              })
          } catch {
            // It has ended, or the next round asks again.
          }
        }
      }
      await Promise.all(Array.from({ length: AT_ONCE }, worker))
      if (this.view === "locks") await this.findLocks()
      this.draw()
      await pause(document.hidden ? 4 * ASK_INTERVAL_MS : this.leases.size ? ASK_INTERVAL_MS : 300, this.signal)
    }
  }

  /** A lock's queue: the keys NAME/LEASE, each on that lease, oldest first. */
  async findLocks() {
    const names = new Map()
    for (const lease of this.leases.values()) {
      for (const key of lease.keys ?? []) {
        const text = asText(key)
        const end = `/${short(lease.id)}`
        if (text?.endsWith(end)) names.set(text.slice(0, -end.length), true)
      }
    }
    const locks = []
    for (const name of names.keys()) {
      try {
        const answer = await rpc(
          "/v3/kv/range",
          {
            key: toBase64(`${name}/`),
            range_end: toBase64(`${name}0`),
            sort_target: "CREATE",
            sort_order: "ASCEND",
            limit: "100",
          },
          { signal: this.signal },
        )
        const queue = (answer.kvs ?? [])
          .filter(kv => field(kv, "lease"))
          .map(kv => ({
            token: field(kv, "create_revision"),
            lease: this.leases.get(idOf(field(kv, "lease"))),
            key: fromBase64(kv.key),
            value: asText(fromBase64(kv.value)),
          }))
        if (queue.length) locks.push({ name, queue })
      } catch (error) {
        if (error.name === "AbortError") return
      }
    }
    this.locks = locks
  }

  async watchSessions() {
    for (let index = 0; !this.signal.aborted;) {
      try {
        const response = await send(`/v1/session/list?index=${index}&wait=20s`, { signal: this.signal })
        index = Number(response.headers.get("x-consul-index") ?? 0)
        this.sessions = await response.json()
        this.isReady = true
        this.draw()
        if (!index) await pause(ASK_INTERVAL_MS, this.signal)
      } catch (error) {
        if (error.isDenied) return
        await pause(1000, this.signal)
      }
    }
  }

  left(lease) {
    if (!lease || lease.left === undefined) return null
    return Math.max(0, lease.left - (performance.now() - lease.askedAt) / 1000)
  }

  timeLeft(lease) {
    const left = this.left(lease)
    if (left === null) return h("span.note", null, this.at ? "at that moment unknown" : "…")
    const share = Math.min(1, left / (lease.granted || 1))
    return h(
      "span.meter-line",
      null,
      h("span.meter", { class: share < 0.2 ? "low" : "", css: { "--share": share } }),
      h("span.digits", null, duration(left)),
    )
  }

  show() {
    if (!this.isReady) return
    const text = this.search.value.toLowerCase()
    const all = {
      leases: () => [...this.leases.values()],
      locks: () => this.locks ?? [],
      sessions: () => this.sessions,
    }[this.view]()
    const searched = row =>
      [row.id, row.name, row.Name, row.Node, row.ID, ...(row.keys ?? []).slice(0, 20).map(key => asText(key) ?? "")]
        .join(" ")
        .toLowerCase()
    this.rows = text ? all.filter(row => searched(row).includes(text)) : all
    if (this.view === "locks") this.rows.sort((a, b) => (a.name < b.name ? -1 : 1))
    this.list.chosen = this.rows.findIndex(row => row.id && row.id === this.id)
    this.list.update(this.rows.length)
    this.count.textContent = `${number(all.length)} ${{ leases: "leases", locks: "locks and elections", sessions: "sessions" }[this.view]}`
    const isEmpty = !this.rows.length && (this.view !== "locks" || this.locks)
    this.replaceList(isEmpty && (text ? empty("Nothing fits") : this.none()))
    if (this.id) this.showLease()
  }

  /** The text in place of an empty list. */
  none() {
    switch (this.view) {
      case "leases":
        return empty(
          "No leases",
          "A lease ends when nobody keeps it alive, and its keys with it.",
          "headwater lease grant 60",
        )
      case "locks":
        return empty(
          "Nobody holds a lock",
          "A lock is a queue of keys on leases; its token fences late writers off.",
          "headwater lock nightly --ttl 10s -- sleep 600",
          "headwater elect primary $HOSTNAME",
        )
      default:
        return empty(
          "No sessions",
          "Consul's clients lock keys by sessions.",
          `curl -X PUT ${location.origin}/v1/session/create -d '{"Name": "worker", "TTL": "60s"}'`,
        )
    }
  }

  row(row, item) {
    if (!item) return
    if (this.view === "leases") {
      const keys = item.keys ?? []
      cells(row, this.columns, [
        h("code", null, short(item.id)),
        this.timeLeft(item),
        duration(item.granted),
        keys.length
          ? `${asText(keys[0]) ?? "binary key"}${keys.length > 1 ? ` and ${number(keys.length - 1)} more` : ""}`
          : "",
      ])
    } else if (this.view === "locks") {
      const [holder] = item.queue
      cells(row, this.columns, [
        item.name,
        holder.value || h("code", null, holder.lease ? short(holder.lease.id) : "?"),
        holder.token,
        number(item.queue.length - 1),
        this.timeLeft(holder.lease),
      ])
    } else
      cells(row, this.columns, [
        item.Name || "unnamed",
        item.Node,
        item.TTL || "none",
        item.Behavior,
        h("code", null, item.ID),
      ])
  }

  choose(item) {
    if (this.view === "leases") location.hash = `#/leases/${item.id}`
    else if (this.view === "locks") this.showLock(item)
    else this.showSession(item)
  }

  keyList(keys) {
    return h(
      "ul.keys",
      null,
      keys.slice(0, 200).map(key => h("li", null, h("a", { href: pageOf(keyPath(key)) }, asText(key) ?? "binary key"))),
      keys.length > 200 && h("li.note", null, `and ${number(keys.length - 200)} more`),
    )
  }

  showLease() {
    const lease = this.leases.get(this.id)
    if (!lease) {
      this.present(
        h("h1", null, short(this.id)),
        h("p", null, this.at ? "It did not exist at this moment." : "This lease has ended, and its keys with it."),
      )
      return
    }
    const left = this.left(lease)
    const signature = `${this.id} ${lease.keys?.length} ${lease.granted}`
    if (signature !== this.signature) {
      this.signature = signature
      this.leftText = h("span", null)
      this.present(
        h("h1", null, short(lease.id)),
        this.canWrite &&
          h(
            "div.actions",
            null,
            button("Revoke", () => this.revoke(lease), { kind: "small danger" }),
          ),
        facts([
          ["Time left", this.leftText],
          ["Granted", duration(lease.granted)],
          ["Number", lease.number],
        ]),
        h("h2", null, `Keys (${number(lease.keys?.length ?? 0)})`),
        this.keyList(lease.keys ?? []),
      )
    }
    this.leftText.textContent = left === null ? "unknown" : duration(left)
  }

  showLock({ name, queue }) {
    this.present(
      h("h1", null, name),
      h("p.note", null, "The first one holds it. Compare the token in every write that it guards."),
      h(
        "table.plain",
        null,
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            ["", "Value", "Token", "Lease", "Time left"].map(title =>
              h("th", { scope: "col" }, title || h("span.hidden-text", null, "Place")),
            ),
          ),
        ),
        h(
          "tbody",
          null,
          queue.map((item, at) =>
            h(
              "tr",
              null,
              h("td", null, at ? `${at}.` : "holds"),
              h("td", null, item.value ?? ""),
              h("td", null, h("a", { href: pageOf(keyPath(item.key)) }, item.token)),
              h("td", null, item.lease && h("a", { href: `#/leases/${item.lease.id}` }, short(item.lease.id))),
              h("td", null, this.timeLeft(item.lease)),
            ),
          ),
        ),
      ),
    )
  }

  showSession(session) {
    this.present(
      h("h1", null, session.Name || session.ID),
      facts([
        ["Id", session.ID],
        ["Node", session.Node],
        ["TTL", session.TTL || "none"],
        ["Behaviour", session.Behavior],
        ["Lock delay", duration(Number(session.LockDelay ?? 0) / 1e9)],
        ["Checks", (session.NodeChecks ?? []).join(", ")],
        ["Created at index", session.CreateIndex],
      ]),
    )
  }

  async revoke(lease) {
    if (
      !(await confirm(
        "Revoke this lease?",
        `Its ${number(lease.keys?.length ?? 0)} keys are removed with it.`,
        "Revoke",
      ))
    )
      return
    try {
      await rpc("/v3/lease/revoke", { ID: lease.number })
      say("Revoked")
    } catch (error) {
      fail(error)
    }
  }

  stop() {
    clearInterval(this.ticking)
    super.stop()
  }
}

export const leases = opens(Leases)
