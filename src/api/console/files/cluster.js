// The cluster: its members and how far each has come, quota and alarms, and this member's rates.

import { field, fromBase64, lines, pause, rpc, send } from "./api.js"
import { button, bytes, confirm, duration, empty, fail, fill, h, number, pill, say, status, time } from "./dom.js"
import { Chart } from "./chart.js"
import { read } from "./store.js"

const INTERVAL_MS = 2000

/** Sums of metrics by name, over all labels. */
function parseMetrics(text) {
  const sums = new Map()
  for (const line of text.split("\n")) {
    if (line === "" || line[0] === "#") continue
    const brace = line.indexOf("{")
    const space = line.lastIndexOf(" ")
    const name = line.slice(0, brace > 0 ? brace : space)
    sums.set(name, (sums.get(name) ?? 0) + Number(line.slice(space + 1)))
  }
  return sums
}

const perSecond = value => `${value < 10 ? value.toFixed(1) : number(Math.round(value))}/s`

class Cluster {
  constructor(main, context) {
    Object.assign(this, context)
    this.tiles = h("div.tiles", null)
    this.table = h(
      "div.scroll",
      { tabindex: "0", role: "region", "aria-label": "Members" },
      h("p.note", null, "Loading…"),
    )
    this.alarms = h("div.alarms", { role: "status" })
    const rate = name => (now, last, seconds) => (now.get(name) - last.get(name)) / seconds
    const gauge = name => now => now.get(name)
    const mean = name => (now, last) => {
      const count = now.get(`${name}_count`) - last.get(`${name}_count`)
      return count > 0 ? (1000 * (now.get(`${name}_sum`) - last.get(`${name}_sum`))) / count : 0
    }
    const requests = metrics =>
      ["grpc_server_handled_total", "headwater_consul_requests_total", "headwater_dns_queries_total"].reduce(
        (sum, name) => sum + (metrics.get(name) ?? 0),
        0,
      )
    this.charts = [
      [new Chart("Log entries applied", perSecond), rate("etcd_server_proposals_applied_total")],
      [new Chart("Requests", perSecond), (now, last, seconds) => (requests(now) - requests(last)) / seconds],
      [
        new Chart("Write of the log, mean", value => `${value.toFixed(1)} ms`),
        mean("etcd_disk_wal_fsync_duration_seconds"),
      ],
      [new Chart("Open streams", number), gauge("headwater_stream_open")],
      [new Chart("Memory", bytes), gauge("process_resident_memory_bytes")],
      [new Chart("Processor", value => `${Math.round(value * 100)} %`), rate("process_cpu_seconds_total")],
    ]
    if (this.at) {
      main.append(h("div.page", null, h("h1", null, "Cluster"), this.tiles, this.table))
      this.past()
      return
    }
    main.append(
      h(
        "div.page",
        null,
        h(
          "div.title-line",
          null,
          h("h1", null, "Cluster"),
          h(
            "div.actions",
            null,
            button("Download a backup", () => this.backup(), { kind: "small" }),
          ),
        ),
        this.alarms,
        this.tiles,
        h("h2", null, "Members"),
        this.table,
        h("h2", null, `Rates of ${this.settings.member ?? "this member"}`),
        h(
          "div.charts",
          null,
          this.charts.map(([chart]) => chart.element),
        ),
      ),
    )
    this.poll()
  }

  async past() {
    try {
      const { entities } = await read(["/cluster/members"], { index: String(this.at.index) }, { signal: this.signal })
      const members = entities.filter(entity => field(entity.data, "ID")).map(entity => entity.data)
      fill(
        this.table,
        h(
          "table.plain",
          null,
          h(
            "thead",
            null,
            h(
              "tr",
              null,
              ["Member", "Id", "Votes", "Clients"].map(title => h("th", { scope: "col" }, title)),
            ),
          ),
          h(
            "tbody",
            null,
            members.map(member =>
              h(
                "tr",
                null,
                h("td", null, member.name),
                h("td", null, BigInt(member.ID).toString(16)),
                h("td", null, member.isLearner ? "no" : "yes"),
                h("td", null, (member.clientURLs ?? []).join(", ")),
              ),
            ),
          ),
        ),
      )
    } catch (error) {
      if (error.name !== "AbortError") fill(this.table, empty("Members are shown for now only", error.message))
    }
    this.showTiles([
      ["Log index", number(this.at.index)],
      ["Revision", number(this.at.revision)],
      ["Time", time(this.at.ms)],
    ])
  }

  async poll() {
    let last
    while (!this.signal.aborted) {
      try {
        await Promise.all([
          this.figures(last).then(now => {
            last = now
          }),
          this.state(),
        ])
      } catch {
        // The banner tells that the node does not answer.
      }
      await pause(document.hidden ? 5 * INTERVAL_MS : INTERVAL_MS, this.signal)
    }
  }

  /** Reads this member's metrics, and adds a point to each chart. */
  async figures(last) {
    const response = await send("/metrics", { signal: this.signal })
    const now = { at: performance.now(), metrics: parseMetrics(await response.text()) }
    if (last)
      for (const [chart, figure] of this.charts)
        chart.push(figure(now.metrics, last.metrics, (now.at - last.at) / 1000))
    this.metrics = now.metrics
    return now
  }

  async state() {
    const [standing, alarms] = await Promise.all([
      rpc("/v3/cluster/member/status", {}, { signal: this.signal }),
      rpc("/v3/maintenance/alarm", { action: "GET" }, { signal: this.signal }),
    ])
    const members = standing.members ?? []
    const leader = members.find(member => member.id === standing.leader)
    const live = Number(field(standing, "live_bytes") ?? 0)
    const quota = Number(field(standing, "quota_bytes") ?? 0)
    const share = quota ? Math.min(1, live / quota) : 0
    this.showTiles([
      ["Leader", leader?.name ?? h("span.problem", null, "none")],
      ["Term", number(standing.term)],
      ["Log index", number(standing.committed)],
      ["Revision", number(standing.revision)],
      ["Keys", number(standing.keys)],
      [
        "Live data",
        bytes(live),
        quota > 0 && h("span.note", null, ` of ${bytes(quota)}`),
        quota > 0 &&
          h("span.meter", {
            class: share > 0.8 ? "low" : "",
            css: { "--share": share },
            title: `${Math.round(share * 100)} %`,
          }),
      ],
      ["Cluster version", field(standing, "cluster_version"), standing.downgrading && pill("being lowered", "warning")],
    ])
    this.showAlarms(alarms.alarms ?? [], members)
    this.showMembers(standing, members)
  }

  showTiles(tiles) {
    fill(
      this.tiles,
      tiles.map(([name, ...value]) =>
        h("div.tile", null, h("span.note", null, name), h("div.figure", null, ...value.filter(Boolean))),
      ),
    )
  }

  showAlarms(alarms, members) {
    const signature = JSON.stringify(alarms)
    if (signature === this.alarmSignature) return
    this.alarmSignature = signature
    const name = id => members.find(member => member.id === id)?.name || BigInt(id ?? 0).toString(16)
    fill(
      this.alarms,
      alarms.map(alarm =>
        h(
          "div.alarm",
          null,
          status("critical", `Alarm ${alarm.alarm}`),
          h(
            "span",
            null,
            `raised by ${name(field(alarm, "memberID"))}: `,
            alarm.alarm === "NOSPACE"
              ? "the quota was exceeded, so puts are refused. Delete keys or raise the quota first."
              : "members differ. Look at their hashes before you disarm it.",
          ),
          this.canWrite && button("Disarm", () => this.disarm(alarm), { kind: "small danger" }),
        ),
      ),
    )
  }

  showMembers(standing, members) {
    const committed = Number(standing.committed ?? 0)
    // Only the leader hands leadership over.
    const isOnLeader = standing.answering === standing.leader
    const leaderUrl = field(
      members.find(member => member.id === standing.leader),
      "client_urls",
    )?.[0]
    const rows = members.map(member => {
      const isLeader = member.id === standing.leader
      const lag = Math.max(0, committed - Number(member.applied ?? 0))
      const url = (field(member, "client_urls") ?? [])[0]
      const isSelf = member.id === standing.answering
      const state = member.problem
        ? status("critical", member.problem)
        : member.serving
          ? status("passing", "serves")
          : status("warning", "recovering")
      return h(
        "tr",
        { class: isSelf ? "self" : "" },
        h("th", { scope: "row" }, member.name || "unnamed", isSelf && pill("this one")),
        h("td", null, isLeader ? pill("leader", "accent") : field(member, "is_learner") ? "learner" : "follower"),
        h("td", null, state),
        h("td.number", null, member.problem ? "–" : lag ? `${number(lag)} behind` : "none"),
        h("td.number", null, member.problem ? "–" : number(member.applied)),
        h("td.number", null, member.problem ? "–" : bytes(field(member, "stored_bytes"))),
        h(
          "td.number",
          null,
          field(member, "round_trip_us") ? `${(Number(field(member, "round_trip_us")) / 1000).toFixed(1)} ms` : "–",
        ),
        h("td", { title: member.program }, (member.program || "not announced").split(" ")[0]),
        h(
          "td",
          null,
          url && !isSelf ? h("a", { href: `${url}/ui/` }, new URL(url).host) : url ? new URL(url).host : "–",
        ),
        h(
          "td",
          null,
          this.canWrite &&
            isOnLeader &&
            !isLeader &&
            !field(member, "is_learner") &&
            !member.problem &&
            button("Make leader", () => this.moveLeader(member), { kind: "small" }),
        ),
      )
    })
    // A button that is pressed or has the focus stays as it is while the figures change.
    if (this.table.matches(":active, :has(:focus)")) return
    const titles = ["Member", "Role", "State", "Lag", "Applied", "Size", "Round trip", "Program", "Console", ""]
    fill(
      this.table,
      h(
        "table.plain.members",
        null,
        h(
          "thead",
          null,
          h(
            "tr",
            null,
            titles.map((title, at) =>
              title ? h("th", { scope: "col", class: at > 2 && at < 7 ? "number" : "" }, title) : h("td", null),
            ),
          ),
        ),
        h("tbody", null, rows),
      ),
      this.canWrite &&
        !isOnLeader &&
        leaderUrl &&
        h(
          "p.note.foot",
          null,
          "The leader is moved from ",
          h("a", { href: `${leaderUrl}/ui/` }, "its own console"),
          ".",
        ),
    )
  }

  async moveLeader(member) {
    if (
      !(await confirm(
        "Move the leader?",
        `${member.name} becomes the leader. Writes wait for it a moment.`,
        "Move",
        "primary",
      ))
    )
      return
    try {
      await rpc("/v3/maintenance/transfer-leadership", { targetID: member.id })
      say(`${member.name} leads`)
    } catch (error) {
      fail(error)
    }
  }

  async disarm(alarm) {
    if (!(await confirm("Disarm the alarm?", "Writes are taken again at once, until the reason comes back.", "Disarm")))
      return
    try {
      await rpc("/v3/maintenance/alarm", {
        action: "DEACTIVATE",
        memberID: field(alarm, "memberID"),
        alarm: alarm.alarm,
      })
      say("Disarmed")
    } catch (error) {
      fail(error)
    }
  }

  /** Fetches a backup, and hands it to the browser as a file. */
  async backup() {
    const began = Date.now()
    let size = 0
    const parts = []
    try {
      const response = await send("/v3/maintenance/snapshot", { method: "POST", body: "{}" })
      for await (const line of lines(response)) {
        if (line.error) throw new Error(line.error.message)
        const part = fromBase64(line.result?.blob)
        parts.push(part)
        size += part.length
      }
      const file = URL.createObjectURL(new Blob(parts))
      const stamp = new Date().toISOString().slice(0, 19).replace(/[:T]/g, "-")
      h("a", { href: file, download: `headwater-${stamp}.backup` }).click()
      setTimeout(() => URL.revokeObjectURL(file), 60000)
      say(
        `A backup of ${bytes(size)} in ${duration((Date.now() - began) / 1000)}. headwater snapshot status checks it.`,
      )
    } catch (error) {
      fail(error)
    }
  }

  stop() {
    for (const [chart] of this.charts) chart.destroy()
  }
}

export function cluster(main, context) {
  const page = new Cluster(main, context)
  return { stop: () => page.stop() }
}
