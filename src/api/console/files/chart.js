// Small live charts: a line over the last minutes, drawn on a canvas.

import { h, perFrame } from "./dom.js"

const POINTS = 150

/** A chart of one figure. `format` writes a value; `push` adds one. */
export class Chart {
  #values = []
  #draw = perFrame(() => this.#paint())

  constructor(title, format, { max } = {}) {
    Object.assign(this, { title, format, max })
    this.number = h("strong", null, "–")
    this.range = h("span.note", null)
    this.canvas = h("canvas", { "aria-hidden": "true" })
    this.element = h(
      "figure.chart",
      null,
      h("figcaption", null, h("span", null, title), this.number),
      this.canvas,
      this.range,
    )
    this.observer = new ResizeObserver(this.#draw)
    this.observer.observe(this.canvas)
    addEventListener("themed", this.#draw)
  }

  push(value) {
    this.#values.push(Number.isFinite(value) ? value : null)
    if (this.#values.length > POINTS) this.#values.shift()
    this.number.textContent = Number.isFinite(value) ? this.format(value) : "–"
    this.#draw()
  }

  destroy() {
    this.observer.disconnect()
    removeEventListener("themed", this.#draw)
    this.#draw.cancel()
  }

  #paint() {
    const { clientWidth: width, clientHeight: height } = this.canvas
    if (!width) return
    const scale = devicePixelRatio
    Object.assign(this.canvas, { width: width * scale, height: height * scale })
    const context = this.canvas.getContext("2d")
    context.scale(scale, scale)
    const style = getComputedStyle(this.canvas)
    const known = this.#values.filter(value => value !== null)
    const top = Math.max(this.max ?? 0, ...known, 1e-9) * 1.1
    this.range.textContent = known.length ? `up to ${this.format(Math.max(...known))}` : "no figures yet"
    const x = at => width - (this.#values.length - 1 - at) * (width / (POINTS - 1))
    const y = value => height - 1 - (value / top) * (height - 3)
    context.strokeStyle = style.outlineColor
    context.lineWidth = 1
    for (const share of [0.5, 1]) {
      const level = Math.round(height - share * (height - 3)) - 0.5
      context.beginPath()
      context.moveTo(0, level)
      context.lineTo(width, level)
      context.stroke()
    }
    const path = new Path2D()
    let first = null
    let last = null
    this.#values.forEach((value, at) => {
      if (value === null) return
      if (first === null) path.moveTo((first = x(at)), y(value))
      else path.lineTo(x(at), y(value))
      last = x(at)
    })
    if (first === null) return
    const area = new Path2D(path)
    area.lineTo(last, height)
    area.lineTo(first, height)
    context.fillStyle = style.caretColor
    context.fill(area)
    context.strokeStyle = style.color
    context.lineWidth = 1.5
    context.lineJoin = "round"
    context.stroke(path)
  }
}
