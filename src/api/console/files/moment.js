// The moment that all pages show: now, or a point of the history that is kept.

import { button, debounce, fail, h, iconButton, time } from "./dom.js"
import { bounds, commands, resolve } from "./store.js"

const STEPS = 1000
const BOUNDS_INTERVAL_MS = 15000

/** The chosen moment; the event "changed" tells of another one. */
export const moment = new (class extends EventTarget {
  /** `{ index, revision, ms }`, or null for now. */
  at = null

  set(at) {
    if (this.at?.index === at?.index) return
    this.at = at
    this.dispatchEvent(new Event("changed"))
  }
})()

/** The bar with the slider. */
export class TimeBar {
  #bounds
  #search

  constructor() {
    this.slider = h("input", {
      type: "range",
      min: "0",
      max: String(STEPS),
      step: "1",
      value: String(STEPS),
      "aria-label": "Moment that is shown",
      oninput: () => this.#slide(),
    })
    this.label = h("output.time-label", null, "Now")
    this.back = button("Back to now", () => this.now(), { kind: "small" })
    this.compare = button(
      "Compare with now",
      () => {
        location.hash = `#/history/compare?from=${moment.at.index}`
      },
      { kind: "small" },
    )
    this.note = h("span.past-note", null)
    this.element = h(
      "div.time-bar",
      { role: "group", "aria-label": "Time", hidden: true },
      h("span.time-name", null, "Time"),
      iconButton("back", "One change back", () => this.step(-1)),
      this.slider,
      iconButton("open", "One change forward", () => this.step(1)),
      this.label,
      this.note,
      this.compare,
      this.back,
    )
    moment.addEventListener("changed", () => this.show())
    this.#find = debounce(() => this.#resolve(), 120)
    this.show()
  }

  #find

  /** Learns the retention, now and from time to time. */
  async start(signal) {
    try {
      this.#bounds = await bounds(signal)
      this.element.hidden = false
      this.show()
    } catch (error) {
      if (error.status === 404 || error.status === 501) return
    }
    setTimeout(() => !signal.aborted && this.start(signal), BOUNDS_INTERVAL_MS)
  }

  now() {
    this.#search?.abort()
    moment.set(null)
    this.show()
  }

  /** Moves by one command. */
  async step(by) {
    const from = moment.at?.index
    try {
      if (by < 0) {
        const { commands: found } = await commands({
          direction: "BACKWARD",
          limit: "1",
          paths_only: true,
          ...(from && { from: { index: String(from) } }),
        })
        if (found.length) this.go({ index: String(Number(found[0].index) - 1) })
      } else if (from) {
        const { commands: found } = await commands({ limit: "1", paths_only: true, from: { index: String(from) } })
        if (found.length) this.go({ index: found[0].index })
        else this.now()
      }
    } catch (error) {
      fail(error)
    }
  }

  /** Shows a point of the history. */
  async go(point) {
    this.#search?.abort()
    const search = (this.#search = new AbortController())
    try {
      const at = await resolve(point, search.signal)
      if (!search.signal.aborted) moment.set(at)
    } catch (error) {
      fail(error)
      this.show()
    }
  }

  get #span() {
    const last = Math.max(Date.now(), this.#bounds?.newest.ms ?? 0)
    return [this.#bounds?.oldest.ms || last - 3600e3, last]
  }

  #slide() {
    const share = Number(this.slider.value) / STEPS
    if (share === 1) {
      this.now()
      return
    }
    const [first, last] = this.#span
    this.label.textContent = time(first + share * (last - first))
    this.#find()
  }

  #resolve() {
    const share = Number(this.slider.value) / STEPS
    if (share === 1) return
    const [first, last] = this.#span
    this.go({ unix_ms: String(Math.round(first + share * (last - first))) })
  }

  show() {
    const { at } = moment
    document.body.classList.toggle("past", Boolean(at))
    this.back.hidden = this.compare.hidden = !at
    this.note.textContent = at ? `index ${at.index} · read only` : ""
    this.label.textContent = !at ? "Now" : at.ms ? time(at.ms) : "The beginning"
    if (!at) this.slider.value = String(STEPS)
    else if (this.#bounds && document.activeElement !== this.slider) {
      const [first, last] = this.#span
      this.slider.value = String(
        Math.max(0, Math.min(STEPS - 1, Math.round(((at.ms - first) / (last - first)) * STEPS))),
      )
    }
    this.slider.setAttribute("aria-valuetext", at ? `${time(at.ms)}, index ${at.index}` : "now")
  }
}
