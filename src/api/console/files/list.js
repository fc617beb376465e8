// Lists of any length: only the rows in view exist as elements.

import { h, perFrame } from "./dom.js"

const ROWS_BEYOND = 6
let lists = 0

/**
 * A list, tree or table with rows of one height.
 *
 * `roles` are the roles of the list and of a row. `render(element, index)` fills a row; `choose(index)` is called when a
 * row is chosen; `key(event, index)` may handle a key and return true. `columns` are [title, width, class], for a table.
 */
export class VirtualList {
  count = 0
  active = -1
  chosen = -1
  #rows = new Map()
  #spare = []
  #pressed = null
  #draw = perFrame(() => this.#render())

  constructor({ label, roles = ["listbox", "option"], columns, render, choose, key, near, height = 28 }) {
    Object.assign(this, { fill: render, choose, key, near, height, roles, id: `list${++lists}` })
    this.body = h("div.rows", { role: columns ? "rowgroup" : "presentation" })
    this.element = h("div.list", {
      role: roles[0],
      tabindex: "0",
      "aria-label": label,
      class: columns ? "table" : "",
      onscroll: this.#draw,
      onkeydown: event => this.#keydown(event),
      // Not `click`: it is lost if the content of the row changes while the button is down.
      onpointerdown: event => {
        this.#pressed = event.button === 0 ? this.#rowOf(event) : null
      },
      onpointerup: event => this.#pressed && this.#pressed === this.#rowOf(event) && this.#click(event),
      onpointercancel: () => {
        this.#pressed = null
      },
      // Screen readers click without a pointer.
      onclick: event => event.detail === 0 && this.#click(event),
    })
    if (columns) {
      this.head = h(
        "div.head",
        { role: "row" },
        columns.map(([title, , kind]) => h("div.cell", { role: "columnheader", class: kind ?? "" }, title)),
      )
      this.element.append(this.head)
      this.element.style.setProperty("--columns", columns.map(column => column[1]).join(" "))
      const narrow = columns.filter(column => !column[2]?.includes("wide"))
      this.element.style.setProperty("--columns-narrow", narrow.map(column => column[1]).join(" "))
    }
    this.element.append(this.body)
    this.element.style.setProperty("--row-height", `${height}px`)
    this.observer = new ResizeObserver(this.#draw)
    this.observer.observe(this.element)
  }

  /** Sets the number of rows, and draws those in view. */
  update(count = this.count) {
    this.count = count
    if (this.active >= count) this.active = count - 1
    this.body.style.height = `${count * this.height}px`
    if (this.roles[0] === "grid") this.element.setAttribute("aria-rowcount", count + 1)
    this.#draw()
  }

  /** Marks the chosen row. */
  select(index) {
    this.chosen = index
    if (index >= 0) this.active = index
    this.#draw()
  }

  scrollTo(index) {
    const top = index * this.height
    const head = this.head?.offsetHeight ?? 0
    const { scrollTop, clientHeight } = this.element
    if (top < scrollTop) this.element.scrollTop = top
    else if (top + this.height > scrollTop + clientHeight - head)
      this.element.scrollTop = top + this.height - clientHeight + head
  }

  get isAtTop() {
    return this.element.scrollTop < this.height
  }

  /** Keeps the rows in view where they are although `count` rows were put in before them. */
  shift(count) {
    if (!this.isAtTop) this.element.scrollTop += count * this.height
    if (this.active >= 0) this.active += count
    if (this.chosen >= 0) this.chosen += count
  }

  destroy() {
    this.observer.disconnect()
    this.#draw.cancel()
  }

  #render() {
    const { scrollTop, clientHeight } = this.element
    const first = Math.max(0, Math.floor(scrollTop / this.height) - ROWS_BEYOND)
    const last = Math.min(this.count, Math.ceil((scrollTop + clientHeight) / this.height) + ROWS_BEYOND)
    for (const [index, row] of this.#rows) {
      if (index >= first && index < last) continue
      this.#rows.delete(index)
      row.remove()
      this.#spare.push(row)
    }
    for (let index = first; index < last; index++) {
      let row = this.#rows.get(index)
      if (!row) {
        row = this.#spare.pop() ?? h("div.row", { role: this.roles[1] })
        this.#rows.set(index, row)
        row.style.transform = `translateY(${index * this.height}px)`
        row.id = `${this.id}-${index}`
        row.dataset.index = index
        this.body.append(row)
      }
      if (this.roles[0] === "grid") row.setAttribute("aria-rowindex", index + 2)
      else {
        row.setAttribute("aria-posinset", index + 1)
        row.setAttribute("aria-setsize", this.count)
      }
      row.classList.toggle("active", index === this.active)
      row.classList.toggle("chosen", index === this.chosen)
      row.setAttribute("aria-selected", index === this.chosen)
      this.fill(row, index)
    }
    if (this.#spare.length > 64) this.#spare.length = 64
    if (this.#rows.has(this.active)) this.element.setAttribute("aria-activedescendant", `${this.id}-${this.active}`)
    else this.element.removeAttribute("aria-activedescendant")
    if (this.near && last >= this.count - 40) this.near()
  }

  #rowOf(event) {
    return event.target.closest(".row")
  }

  #click(event) {
    const row = this.#rowOf(event)
    this.#pressed = null
    if (!row || event.target.closest("a, button, input")) return
    this.active = Number(row.dataset.index)
    this.#draw()
    this.choose?.(this.active, event)
  }

  #keydown(event) {
    if (event.target !== this.element || event.ctrlKey || event.metaKey || event.altKey) return
    const page = Math.max(1, Math.floor(this.element.clientHeight / this.height) - 1)
    const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity }
    if (this.active >= 0 && this.key?.(event, this.active)) {
      event.preventDefault()
      return
    }
    if (event.key in steps) {
      this.active = Math.min(this.count - 1, Math.max(0, this.active + steps[event.key]))
      if (this.active >= 0) this.scrollTo(this.active)
      this.#draw()
    } else if ((event.key === "Enter" || event.key === " ") && this.active >= 0) this.choose?.(this.active, event)
    else return
    event.preventDefault()
  }
}

/** Fills a row of a table. Cells are texts or elements; `classes` are those of the columns. */
export function cells(row, columns, values) {
  row.replaceChildren(
    ...values.map((value, index) =>
      h("div.cell", { role: "gridcell", class: columns[index][2] ?? "" }, ...[value].flat()),
    ),
  )
}

/** The position of `value` in a sorted list, or of the first larger one; `of` gives the key of an entry. */
export function lowerBound(list, value, of = entry => entry) {
  let low = 0
  let high = list.length
  while (low < high) {
    const middle = (low + high) >> 1
    if (of(list[middle]) < value) low = middle + 1
    else high = middle
  }
  return low
}
