// Typed resources: types, tables by type, and one resource as YAML, with its owners and statuses.

import { field, get, send } from "./api.js"
import {
  button,
  confirm,
  copyButton,
  dialog,
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
  tabs,
  time,
} from "./dom.js"
import { Follow } from "./follow.js"
import { cells, VirtualList } from "./list.js"
import { ListPage, opens } from "./page.js"
import { contentOf, targetOf } from "./store.js"
import { sideBySide } from "./value.js"
import { read as readYaml, write as writeYaml, YamlError } from "./yaml.js"

const TARGET = "/resources?recursive=true"
const REGISTRATION = "headwater/v1/ResourceType"
// Types of the store's own, after those of users.
const OWN_GROUPS = new Set(["headwater", "tenancy", "internal"])
const TREE_MAX = 500

const unit = text => text || "~"
const nameOfType = type => `${type.group}.${type.groupVersion}.${type.kind}`

/** A resource as the gateway writes it, with the names that the watcher uses. What users named stays as it is. */
function inCamelCase(value, name) {
  if (Array.isArray(value)) return value.map(item => inCamelCase(item))
  if (value === null || typeof value !== "object" || name === "data" || name === "metadata") return value
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [
      key.replace(/_(.)/g, (_, letter) => letter.toUpperCase()),
      inCamelCase(item, key),
    ]),
  )
}

/** The path below /resources of a resource that is named by an id or as an owner. */
function elementOf(id) {
  const { type, tenancy = {} } = id
  return [type.group, type.groupVersion, type.kind, unit(tenancy.partition), unit(tenancy.namespace), id.name].join("/")
}

const link = element => `#/resources/${element.split("/").map(encodeURIComponent).join("/")}`

/** A short text of a resource's data, for a table. */
function summary(resource) {
  const content = contentOf(resource.data ?? {})
  if (content === null || typeof content !== "object") return String(content)
  const texts = Object.entries(content).filter(([, value]) => value !== "" && typeof value !== "object")
  return texts
    .slice(0, 4)
    .map(([name, value]) => `${name}: ${value}`)
    .join("  ")
}

function conditionKind(state) {
  return { STATE_TRUE: "passing", STATE_FALSE: "critical" }[state] ?? "none"
}

class Resources extends ListPage {
  all = new Map()
  rows = []

  constructor(main, context) {
    super(context)
    this.types = new VirtualList({
      label: "Types",
      render: (row, index) => this.typeRow(row, this.typeRows[index]),
      choose: index => {
        location.hash = link(this.typeRows[index].path)
      },
    })
    this.title = h("h1", null, "Resources")
    this.build(main, {
      list: {
        label: "Resources",
        roles: ["grid", "row"],
        columns: [
          ["Name", "minmax(7rem, 1.4fr)"],
          ["Data", "minmax(6rem, 3fr)", "wide"],
          ["Owner", "minmax(5rem, 1fr)", "wide"],
          ["Version", "5rem", "wide number"],
        ],
        height: 30,
        render: (row, index) => this.row(row, this.rows[index]),
        choose: index => {
          location.hash = link(this.rows[index].element)
        },
      },
      search: { placeholder: "Name or metadata", "aria-label": "Resources with this text" },
      detail: "Resource",
      tools: search => [
        h("a.back", { href: "#/resources", "aria-label": "Back to the types" }, icon("back")),
        this.title,
        search,
      ],
      side: h("div.pane.side", null, h("div.toolbar", null, h("h2", null, "Types")), this.types.element),
      pane: ".middle",
      split: ".three",
    })
    this.draw = paced(() => this.show(), 100)
    this.move(context.parts)
    if (this.at) this.past([TARGET], entities => this.showPast(entities))
    else this.stream = new Follow(TARGET, { group: (changes, isState) => this.apply(changes, isState), denied: fail })
  }

  showPast(entities) {
    for (const resource of entities.map(({ data }) => inCamelCase(data ?? {})))
      if (resource.id) this.all.set(elementOf(resource.id), resource)
    this.isReady = true
    this.draw()
  }

  apply(changes, isState) {
    if (isState) this.all.clear()
    for (const { element = "", state, data } of changes) {
      if (state === "DOES_NOT_EXIST") {
        if (this.all.delete(element)) continue
        for (const name of [...this.all.keys()]) if (!element || name.startsWith(`${element}/`)) this.all.delete(name)
      } else if (data?.id) this.all.set(element, data)
    }
    this.isReady = true
    this.draw()
  }

  move(parts) {
    this.type = parts.length >= 3 ? parts.slice(0, 3).join("/") : null
    this.element = parts.length >= 6 ? parts.join("/") : null
    this.split.classList.toggle("has-list", parts.length >= 3)
    this.split.classList.toggle("has-detail", parts.length >= 6)
    this.signature = null
    this.editing = null
    if (!this.element) this.hint(this.type ? "Choose a resource to see and edit it." : "Choose a type.")
    this.draw()
    return true
  }

  show() {
    if (!this.isReady) return
    const counts = new Map()
    const registrations = new Map()
    this.children = new Map()
    const rows = []
    const text = this.search.value.toLowerCase()
    for (const [element, resource] of this.all) {
      const path = element.split("/", 3).join("/")
      counts.set(path, (counts.get(path) ?? 0) + 1)
      if (path === REGISTRATION && resource.data?.group) {
        const { group, kind } = resource.data
        registrations.set(`${group}/${field(resource.data, "group_version")}/${kind}`, resource.data)
      }
      if (resource.owner) {
        const owner = elementOf(resource.owner)
        if (!this.children.has(owner)) this.children.set(owner, [])
        this.children.get(owner).push(element)
      }
      if (
        path === this.type &&
        (!text || `${resource.id.name} ${JSON.stringify(resource.metadata ?? {})}`.toLowerCase().includes(text))
      )
        rows.push({ element, resource })
    }
    this.registrations = registrations
    const paths = new Set([...registrations.keys(), ...counts.keys()])
    this.typeRows = [...paths]
      .map(path => ({ path, count: counts.get(path) ?? 0, isOwn: OWN_GROUPS.has(path.split("/")[0]) }))
      .sort((a, b) => a.isOwn - b.isOwn || (a.path < b.path ? -1 : 1))
    this.types.chosen = this.typeRows.findIndex(row => row.path === this.type)
    this.types.update(this.typeRows.length)
    this.rows = rows.sort((a, b) => (a.element < b.element ? -1 : 1))
    this.list.chosen = rows.findIndex(row => row.element === this.element)
    this.list.update(rows.length)
    this.title.textContent = this.type?.split("/")[2] ?? "Resources"
    this.count.textContent = `${number(counts.get(this.type) ?? 0)} of this type · ${number(this.all.size)} in all`
    const instead = () =>
      this.at
        ? empty("None", "There were none at this moment.")
        : this.typeRows.some(row => !row.isOwn)
          ? empty(
              this.type ? "None of this type" : "Choose a type",
              this.type && registrations.get(this.type)?.description,
            )
          : empty(
              "No types yet",
              "A type is registered while the cluster runs; its resources come after it.",
              "headwater resource apply -f examples/",
            )
    this.replaceList(!this.rows.length && instead())
    this.showDetail()
  }

  typeRow(row, type) {
    if (!type) return
    const [group, version, kind] = type.path.split("/")
    fill(
      row,
      h("span.name", null, kind, h("span.note", null, ` ${group}.${version}`)),
      h("span.count", null, number(type.count)),
    )
    row.classList.toggle("own", type.isOwn)
  }

  row(row, item) {
    if (!item) return
    const { resource } = item
    const { tenancy = {} } = resource.id
    const place = [tenancy.partition, tenancy.namespace].filter(name => name && name !== "default").join("/")
    cells(row, this.columns, [
      [
        resource.id.name,
        place && h("span.note", null, ` ${place}`),
        resource.metadata?.deletionTimestamp !== undefined && pill("being deleted", "warning"),
      ],
      summary(resource),
      resource.owner ? resource.owner.name : "",
      resource.version,
    ])
  }

  showDetail() {
    if (!this.element || this.editing) return
    const resource = this.all.get(this.element)
    const family = this.familyOf(this.element)
    const signature = JSON.stringify([resource, family])
    if (signature === this.signature) return
    this.signature = signature
    const back = h("a.back", { href: link(this.type), "aria-label": "Back to the list" }, icon("back"))
    const name = this.element.split("/").slice(5).join("/")
    const history = `#/history?target=${encodeURIComponent(targetOf("resources", this.element.split("/")))}`
    if (!resource) {
      fill(
        this.detail,
        h("header", null, back, h("h1", null, name)),
        h("p", null, this.at ? "It did not exist at this moment." : "There is no such resource."),
        h("a", { href: history }, "Its history"),
      )
      return
    }
    const { id } = resource
    const statuses = Object.entries(resource.status ?? {})
    const selected = this.selected ?? 0
    const owners = this.all.size ? this.ownerTree(family) : ""
    fill(
      this.detail,
      h("header", null, back, h("h1", null, id.name), copyButton(id.name, "Copy the name")),
      this.canWrite &&
        h(
          "div.actions",
          null,
          h("button.button.small", { type: "button", "data-key": "e", onclick: () => this.edit(resource) }, "Edit"),
          button("Delete", () => this.remove(resource), { kind: "small danger" }),
        ),
      facts([
        ["Type", nameOfType(id.type)],
        ["Tenancy", [id.tenancy?.partition, id.tenancy?.namespace].filter(Boolean).join(" / ")],
        ["Version", resource.version],
        ["Uid", id.uid],
      ]),
      tabs(
        "Parts of the resource",
        [
          ["YAML", () => h("pre.value", { tabindex: "0" }, writeYaml(manifestOf(resource)))],
          [`Owners${family.size > 1 ? ` (${family.size})` : ""}`, () => owners],
          [
            `Status${statuses.length ? ` (${statuses.length})` : ""}`,
            () =>
              statuses.length
                ? statuses.map(entry => this.statusView(...entry))
                : h("p.note", null, "No controller has written a status."),
          ],
        ],
        {
          selected,
          onselect: index => {
            this.selected = index
          },
        },
      ),
      h("p", null, h("a", { href: history }, "Its history")),
    )
  }

  statusView(name, written) {
    return h(
      "article.card",
      null,
      h(
        "header",
        null,
        h("h2", null, name),
        written.updatedAt && h("span.note", null, time(Date.parse(written.updatedAt))),
      ),
      h("p.note", null, `Of generation ${written.observedGeneration ?? "unknown"}`),
      (written.conditions ?? []).map(condition =>
        h(
          "div.condition",
          null,
          status(conditionKind(condition.state), condition.type),
          condition.reason && pill(condition.reason),
          h("span", null, condition.message ?? ""),
        ),
      ),
    )
  }

  /** The elements of the tree of owners that an element belongs to, with their depth, from the root on. */
  familyOf(element) {
    let root = element
    const above = new Set([root])
    for (let owner; (owner = this.all.get(root)?.owner);) {
      const next = elementOf(owner)
      if (above.has(next)) break
      above.add(next)
      root = next
    }
    const family = new Map()
    const visit = (at, depth) => {
      if (family.has(at) || family.size >= TREE_MAX) return
      family.set(at, depth)
      for (const child of (this.children?.get(at) ?? []).sort()) visit(child, depth + 1)
    }
    visit(root, 0)
    return family
  }

  ownerTree(family) {
    if (family.size < 2) return h("p.note", null, "It has no owner and owns nothing.")
    const entries = [...family]
    let at = 0
    const level = depth => {
      const items = []
      while (at < entries.length && entries[at][1] === depth) {
        const [element] = entries[at++]
        const [, version, kind] = element.split("/")
        const resource = this.all.get(element)
        const name = element.split("/").slice(5).join("/")
        items.push(
          h(
            "li",
            null,
            h("a", { href: link(element), "aria-current": element === this.element ? "true" : null }, name),
            h("span.note", null, ` ${version}.${kind}${resource ? "" : " (gone)"}`),
            at < entries.length && entries[at][1] > depth ? level(depth + 1) : "",
          ),
        )
      }
      return h("ul", null, items)
    }
    return h("div.owners", null, level(0), h("p.note", null, "What is below goes when its owner is deleted."))
  }

  // ---- changes

  api(id, parameters = {}) {
    const { type, tenancy = {} } = id
    const query = new URLSearchParams(
      Object.entries({ partition: tenancy.partition, namespace: tenancy.namespace, ...parameters }).filter(
        entry => entry[1] !== undefined && entry[1] !== "",
      ),
    )
    return `/api/${type.group}/${type.groupVersion}/${type.kind.toLowerCase()}/${encodeURIComponent(id.name)}?${query}`
  }

  edit(resource) {
    this.editing = resource
    const original = writeYaml(editable(resource))
    const area = h("textarea.yaml", { "aria-label": "Resource as YAML", rows: 22, spellcheck: false })
    area.value = original
    const problem = h("p.problem", { role: "alert" })
    const form = h(
      "form.editor",
      {
        onsubmit: async event => {
          event.preventDefault()
          problem.textContent = ""
          try {
            await this.save(resource, readYaml(area.value), area.value)
          } catch (error) {
            problem.textContent = error.message
            if (error instanceof YamlError) {
              const start = area.value.split("\n").slice(0, error.line).join("\n").length + (error.line ? 1 : 0)
              area.focus()
              area.setSelectionRange(start, start + area.value.slice(start).split("\n")[0].length)
            }
          }
        },
        onkeydown: event => {
          if ((event.ctrlKey || event.metaKey) && event.key === "Enter") form.requestSubmit()
        },
      },
      area,
      problem,
      h(
        "footer",
        null,
        button("Cancel", () => this.endEdit()),
        h("button.button.primary", { type: "submit" }, "Save"),
        h("span.note", null, "Saved only if the version is still the same. Name, type and owner never change."),
      ),
    )
    this.detail.querySelector(".tabs").replaceWith(form)
    this.detail.querySelector(".actions").hidden = true
    area.focus()
    area.setSelectionRange(0, 0)
  }

  endEdit() {
    this.editing = null
    this.signature = null
    this.draw()
  }

  async save(resource, manifest, text) {
    if (manifest === null || typeof manifest !== "object" || Array.isArray(manifest))
      throw new Error("The document is no mapping.")
    const unknown = Object.keys(manifest).find(name => !["metadata", "data"].includes(name))
    if (unknown) throw new Error(`There is no field ${unknown} to edit; there are metadata and data.`)
    const body = { metadata: manifest.metadata ?? {}, data: manifest.data ?? undefined, owner: resource.owner }
    try {
      await send(this.api(resource.id, { version: resource.version }), { method: "PUT", body: JSON.stringify(body) })
    } catch (error) {
      if (error.status !== 409) throw error
      const theirs = await get(this.api(resource.id, { consistent: "true" }))
      const overwrite = await this.conflict(theirs, text)
      if (overwrite) await this.save({ ...theirs, id: resource.id, owner: resource.owner }, manifest, text)
      return
    }
    say(`Saved ${resource.id.name}`)
    this.endEdit()
  }

  conflict(theirs, text) {
    return dialog(
      "Changed meanwhile",
      close => [
        h("p", null, `The resource has version ${theirs.version} by now.`),
        sideBySide(writeYaml(editable(theirs)).split("\n"), text.split("\n"), ["Stored now", "Yours"]),
        h(
          "footer",
          null,
          button("Keep editing", () => close(false)),
          button("Write mine over it", () => close(true), { kind: "danger" }),
        ),
      ],
      { wide: true },
    )
  }

  async remove(resource) {
    const below = this.familyBelow(elementOf(resource.id))
    const text = [
      `${nameOfType(resource.id.type)} ${resource.id.name}`,
      below ? `It owns ${number(below)} resources, which go with it.` : "It owns nothing.",
    ]
    if (!(await confirm("Delete this resource?", text, "Delete"))) return
    try {
      await send(this.api(resource.id, { version: resource.version }), { method: "DELETE" })
      say(`Deleted ${resource.id.name}`)
    } catch (error) {
      fail(error.status === 409 ? new Error("It was changed meanwhile; nothing was deleted.") : error)
    }
  }

  familyBelow(element) {
    return (this.children.get(element) ?? []).reduce((sum, child) => sum + 1 + this.familyBelow(child), 0)
  }

  stop() {
    this.types.destroy()
    super.stop()
  }
}

/** A resource as `headwater resource read` prints it. */
function manifestOf(resource) {
  const { id, owner, metadata, version } = resource
  return {
    type: nameOfType(id.type),
    name: id.name,
    ...(id.tenancy && { tenancy: id.tenancy }),
    ...(owner && { owner: { type: nameOfType(owner.type), name: owner.name } }),
    version,
    ...(metadata && { metadata }),
    ...editable(resource),
  }
}

/** The parts of a resource that a write may change. */
function editable({ metadata, data }) {
  return { ...(metadata && { metadata }), ...(data && { data: contentOf(data) }) }
}

export const resources = opens(Resources)
