// Services and nodes of the catalog, with their health.

import { send } from "./api.js"
import {
  button,
  choice,
  confirm,
  copyButton,
  empty,
  facts,
  fail,
  fill,
  h,
  icon,
  number,
  paced,
  pill,
  say,
  status,
} from "./dom.js"
import { Follow } from "./follow.js"
import { cells } from "./list.js"
import { ListPage, opens } from "./page.js"
import { targetOf } from "./store.js"

const RANK = { passing: 0, warning: 1, critical: 2 }
const STATUSES = ["critical", "warning", "passing"]
const TARGETS = ["/services?recursive=true", "/nodes"]

const checksOf = instance => instance.Checks ?? []
const worst = checks =>
  checks.reduce((worst, check) => (RANK[check.Status] > RANK[worst] ? check.Status : worst), "passing")
const idOf = instance => instance.Service.ID || instance.Service.Service

/** How many instances have which status, as signs and numbers. */
function health(counts) {
  return h(
    "span.health",
    null,
    STATUSES.filter(name => counts[name]).map(name => status(name, number(counts[name]))),
  )
}

function checkView(check) {
  return h(
    "details.check",
    { open: check.Status !== "passing" },
    h(
      "summary",
      null,
      status(check.Status),
      h("strong", null, check.Name || check.CheckID),
      !check.ServiceID && pill("node"),
      check.Type && pill(check.Type),
    ),
    check.Output ? h("pre.value", { tabindex: "0" }, check.Output) : h("p.note", null, "No output."),
    check.Notes && h("p.note", null, check.Notes),
  )
}

class Services extends ListPage {
  instances = new Map()
  nodes = new Map()
  rows = []

  constructor(main, context) {
    super(context)
    this.byNode = context.parts[0] === "~node"
    const kinds = [
      [false, "Services"],
      [true, "Nodes"],
    ]
    const kind = choice("Grouped by", kinds, this.byNode, byNode => {
      location.hash = byNode ? "#/services/~node" : "#/services"
    })
    this.build(main, {
      list: {
        label: "Services",
        roles: ["grid", "row"],
        columns: [
          ["Name", "minmax(8rem, 2fr)"],
          ["Health", "minmax(7rem, 1.2fr)"],
          ["Instances", "6rem", "wide number"],
          ["Tags", "minmax(4rem, 1fr)", "wide"],
        ],
        height: 30,
        render: (row, index) => this.row(row, this.rows[index]),
        choose: index => this.choose(this.rows[index]),
      },
      search: { placeholder: "Name or tag", "aria-label": "Services with this name or tag" },
      detail: "Service",
      tools: search => [search, kind],
    })
    this.draw = paced(() => this.show(), 100)
    this.move(context.parts)
    if (this.at) this.past(TARGETS, entities => this.showPast(entities))
    else {
      this.streams = [this.instances, this.byNode && this.nodes]
        .filter(Boolean)
        .map(
          (map, at) =>
            new Follow(TARGETS[at], { group: (changes, isState) => this.apply(map, changes, isState), denied: fail }),
        )
    }
  }

  showPast(entities) {
    for (const { path, data } of entities) {
      if (data?.Service) this.instances.set(path, data)
      else if (data?.Node) this.nodes.set(path, data)
    }
    this.isReady = true
    this.draw()
  }

  apply(map, changes, isState) {
    if (isState) map.clear()
    for (const { element = "", state, data } of changes) {
      if (state === "DOES_NOT_EXIST") {
        if (map.delete(element)) continue
        for (const name of [...map.keys()]) if (!element || name.startsWith(`${element}/`)) map.delete(name)
      } else if (data?.Service || data?.Node) map.set(element, data)
    }
    if (map === this.instances) this.isReady = true
    this.draw()
  }

  groups() {
    const groups = new Map()
    const group = (key, name) => {
      let found = groups.get(key)
      if (!found) groups.set(key, (found = { key, name, instances: [], counts: {}, tags: new Set() }))
      return found
    }
    if (this.byNode) for (const node of this.nodes.values()) group(node.Node.toLowerCase(), node.Node).node = node
    for (const instance of this.instances.values()) {
      const { Service, Node } = instance
      const found = this.byNode
        ? group(Node.Node.toLowerCase(), Node.Node)
        : group(Service.Service.toLowerCase(), Service.Service)
      const state = worst(checksOf(instance))
      found.instances.push(instance)
      found.counts[state] = (found.counts[state] ?? 0) + 1
      for (const tag of Service.Tags ?? []) found.tags.add(tag)
    }
    return groups
  }

  show() {
    if (!this.isReady) return
    const groups = this.groups()
    const text = this.search.value.toLowerCase()
    const fits = group =>
      !text || group.key.includes(text) || [...group.tags].some(tag => tag.toLowerCase().includes(text))
    this.rows = [...groups.values()].filter(fits).sort((a, b) => (a.key < b.key ? -1 : 1))
    this.group = groups.get(this.name)
    this.list.chosen = this.rows.indexOf(this.group)
    this.list.update(this.rows.length)
    const total = {}
    for (const group of groups.values())
      for (const name of STATUSES) total[name] = (total[name] ?? 0) + (group.counts[name] ?? 0)
    fill(
      this.count,
      `${number(groups.size)} ${this.byNode ? "nodes" : "services"} · ${number(this.instances.size)} instances `,
      health(total),
    )
    const instead = () =>
      text
        ? empty("Nothing fits", `No name or tag has ${text} in it.`)
        : this.byNode
          ? empty("No nodes", "The catalog has no node.")
          : empty(
              "No services",
              this.at ? "There were none at this moment." : "Register the first one:",
              ...(this.at ? [] : ["headwater register web --port 80 --tag v1 --status passing"]),
            )
    this.replaceList(!this.rows.length && instead())
    this.showDetail()
  }

  row(row, group) {
    if (!group) return
    cells(row, this.columns, [
      group.name,
      group.instances.length ? health(group.counts) : h("span.note", null, "no instance"),
      number(group.instances.length),
      [...group.tags].sort().map(tag => pill(tag)),
    ])
  }

  choose(group) {
    location.hash = `#/services/${this.byNode ? "~node/" : ""}${encodeURIComponent(group.name)}`
  }

  move(parts) {
    if (this.byNode !== (parts[0] === "~node")) return false
    const names = this.byNode ? parts.slice(1) : parts
    this.name = names[0]?.toLowerCase()
    this.only = this.byNode ? undefined : names.slice(1)
    this.split.classList.toggle("has-detail", Boolean(this.name))
    this.signature = null
    this.hint(`Choose a ${this.byNode ? "node" : "service"} to see its instances and checks.`)
    this.draw()
    return true
  }

  showDetail() {
    if (!this.name) return
    const { group } = this
    // Elements are kept while nothing changed: an open check stays open.
    const signature = JSON.stringify(group?.instances ?? null)
    if (signature === this.signature) return
    // A button that is pressed stays.
    if (this.detail.matches(":active")) {
      setTimeout(this.draw, 200)
      return
    }
    this.signature = signature
    const head = h(
      "header",
      null,
      h(
        "a.back",
        { href: this.byNode ? "#/services/~node" : "#/services", "aria-label": "Back to the list" },
        icon("back"),
      ),
      h("h1", null, group?.name ?? this.name),
      group && health(group.counts),
    )
    if (!group) {
      fill(
        this.detail,
        head,
        h("p", null, this.at ? "It did not exist at this moment." : "It is not in the catalog."),
        !this.byNode &&
          h("a", { href: `#/history?target=${encodeURIComponent(targetOf("services", [this.name]))}` }, "Its history"),
      )
      return
    }
    // Empty without a DNS port.
    const domain = this.settings.dns_domain
    const dns = !domain
      ? []
      : this.byNode
      ? [`${group.key}.node.${domain}`]
      : [
          `${group.key}.service.${domain}`,
          ...[...group.tags]
            .sort()
            .slice(0, 3)
            .map(tag => `${tag.toLowerCase()}.${group.key}.service.${domain}`),
        ]
    const sorted = [...group.instances].sort(
      (a, b) => RANK[worst(checksOf(b))] - RANK[worst(checksOf(a))] || (idOf(a) < idOf(b) ? -1 : 1),
    )
    const node = group.node
    const target = this.byNode ? targetOf("nodes", [group.key]) : `${targetOf("services", [group.key])}?recursive=true`
    fill(
      this.detail,
      head,
      h(
        "div.copies",
        null,
        dns.map(name => h("span.copy", null, h("code", null, name), copyButton(name, `Copy the DNS name ${name}`))),
      ),
      node && facts([["Address", node.Address], ["Id", node.ID], ...Object.entries(node.Meta ?? {})]),
      h("p", null, h("a", { href: `#/history?target=${encodeURIComponent(target)}` }, "Its history")),
      sorted.map(instance => this.card(instance)),
    )
  }

  card(instance) {
    const { Service, Node } = instance
    const checks = [...checksOf(instance)].sort((a, b) => RANK[b.Status] - RANK[a.Status])
    const address = Service.Address || Node.Address
    const where = this.byNode
      ? h("a", { href: `#/services/${encodeURIComponent(Service.Service)}` }, Service.Service)
      : h("a", { href: `#/services/~node/${encodeURIComponent(Node.Node)}` }, Node.Node)
    return h(
      "article.card",
      null,
      h(
        "header",
        null,
        status(worst(checks)),
        h("h2", null, idOf(instance)),
        h("span.note", null, "on "),
        where,
        (Service.Tags ?? []).map(tag => pill(tag)),
        this.canWrite && button("Deregister", () => this.deregister(instance), { kind: "small danger" }),
      ),
      facts([
        [
          "Address",
          h(
            "code",
            null,
            `${address.includes(":") ? `[${address}]` : address}${Service.Port ? `:${Service.Port}` : ""}`,
          ),
        ],
        Service.Kind && ["Kind", Service.Kind],
        ...Object.entries(Service.Meta ?? {}),
      ]),
      checks.length ? checks.map(checkView) : h("p.note", null, "No checks: it counts as passing."),
    )
  }

  async deregister(instance) {
    const name = `${idOf(instance)} on ${instance.Node.Node}`
    if (
      !(await confirm(
        "Deregister this instance?",
        [`${name} leaves the catalog and DNS.`, "History can bring it back."],
        "Deregister",
      ))
    )
      return
    try {
      await send("/v1/catalog/deregister", {
        method: "PUT",
        body: JSON.stringify({ Node: instance.Node.Node, ServiceID: idOf(instance) }),
      })
      say(`Deregistered ${name}`)
    } catch (error) {
      fail(error)
    }
  }

  stop() {
    for (const stream of this.streams ?? []) stream.stop()
    super.stop()
  }
}

export const services = opens(Services)
