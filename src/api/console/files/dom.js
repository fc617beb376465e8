// Elements, texts and small widgets. Data reaches the page as text nodes only.

/** Makes an element: `h("p.note", { onclick, title }, "text", child)`. */
export function h(tag, props, ...children) {
  const [name, ...classes] = tag.split(".")
  const element = document.createElement(name || "div")
  if (classes.length) element.className = classes.join(" ")
  for (const [key, value] of Object.entries(props ?? {})) {
    if (value === undefined || value === null || value === false) continue
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value)
    else if (key === "class") element.className += ` ${value}`
    else if (key === "css") for (const [name, to] of Object.entries(value)) element.style.setProperty(name, to)
    else if (key in element && typeof value !== "string") element[key] = value
    else element.setAttribute(key, value === true ? "" : value)
  }
  element.append(...children.flat(3).filter(child => child !== null && child !== undefined && child !== false))
  return element
}

/** Replaces the content of an element; lists are flattened, and absent children left out. */
export function fill(element, ...children) {
  element.replaceChildren(...children.flat(3).filter(child => child !== null && child !== undefined && child !== false))
  return element
}

const SVG = "http://www.w3.org/2000/svg"

/** Makes an element of an SVG image. */
function svg(tag, props, ...children) {
  const element = document.createElementNS(SVG, tag)
  for (const [key, value] of Object.entries(props ?? {})) element.setAttribute(key, value)
  element.append(...children)
  return element
}

// Outlines of the icons, on a grid of 16.
const ICONS = {
  cluster: "M8 1.5 14 5v6l-6 3.5L2 11V5zM8 8l6-3M8 8v6.5M8 8 2 5",
  keys: "M2 3h12M2 8h7M2 13h10M12.5 6.5v3M11 8h3",
  services: "M3 2.5h10v4H3zM3 9.5h10v4H3zM5.5 4.5h0M5.5 11.5h0",
  resources: "M8 1.5v4M3.5 10V7.5h9V10M6 1.5h4v3H6zM1.5 10h4v3.5h-4zM10.5 10h4v3.5h-4z",
  leases: "M8 4.5V8l2.5 2M8 14a6 6 0 1 0 0-12 6 6 0 0 0 0 12z",
  history: "M2 8a6 6 0 1 0 2-4.5L2 5.2M2 2v3.2h3.2M8 5v3.2l2.3 1.4",
  theme: "M8 2v12a6 6 0 0 0 0-12zM8 14A6 6 0 0 1 8 2",
  user: "M8 8a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM2.5 14c.6-2.8 2.7-4 5.5-4s4.900 1.200 5.500 4",
  help: "M6 6a2 2 0 1 1 2.800 1.800c-.6.3-.8.7-.8 1.400M8 11.500h0M8 14.500a6.500 6.500 0 1 0 0-13 6.500 6.500 0 0 0 0 13z",
  open: "m6 4 4 4-4 4",
  copy: "M5.500 5.500h8v8h-8zM10.500 5.500v-3h-8v8h3",
  back: "m10 3-5 5 5 5",
  plus: "M8 3v10M3 8h10",
  more: "M3.500 8h0M8 8h0M12.500 8h0",
}

/** An icon, hidden from screen readers: the control around it has a name. */
export function icon(name) {
  return svg("svg", { class: "icon", viewBox: "0 0 16 16", "aria-hidden": "true" }, svg("path", { d: ICONS[name] }))
}

/** A button with a text, or with an icon and a name. */
export function button(text, onclick, { kind = "", symbol, title, disabled } = {}) {
  return h(
    "button",
    { class: `button ${kind}`, type: "button", onclick, title, disabled },
    symbol && icon(symbol),
    text,
  )
}

export function iconButton(symbol, name, onclick, props) {
  return h("button.icon-button", { type: "button", "aria-label": name, title: name, onclick, ...props }, icon(symbol))
}

/** A button that copies a text. */
export function copyButton(text, name = `Copy ${text}`) {
  return iconButton("copy", name, async () => {
    try {
      await navigator.clipboard.writeText(text)
    } catch {
      // Without a secure context there is no clipboard API.
      const area = h("textarea.hidden-text", { "aria-hidden": "true" })
      area.value = text
      document.body.append(area)
      area.select()
      document.execCommand("copy")
      area.remove()
    }
    say(`Copied ${text}`)
  })
}

/** A message that disappears by itself, and is read out. */
export function say(text, kind = "") {
  const box = document.getElementById("messages")
  const message = h("p.message", { class: kind }, text)
  box.append(message)
  while (box.childElementCount > 4) box.firstElementChild.remove()
  setTimeout(() => message.remove(), kind === "error" ? 10000 : 4000)
}

/** Shows a failure of an action. */
export function fail(error) {
  if (error?.name !== "AbortError") say(error?.message ?? String(error), "error")
}

/**
 * Opens a modal dialog. `build` gets a function that closes it with a value, and returns its content; the promise has
 * that value, or undefined if it was dismissed.
 */
export function dialog(title, build, { wide = false } = {}) {
  return new Promise(resolve => {
    let result
    const element = h("dialog", { class: wide ? "wide" : "", "aria-labelledby": "dialog-title" })
    const close = value => {
      result = value
      element.close()
    }
    element.append(
      h(
        "header",
        null,
        h("h2", { id: "dialog-title" }, title),
        iconButton("plus", "Close", () => close(), { class: "close" }),
      ),
      h("div.dialog-body", null, build(close)),
    )
    element.addEventListener("close", () => {
      element.remove()
      resolve(result)
    })
    element.addEventListener("click", event => event.target === element && close())
    document.body.append(element)
    element.showModal()
  })
}

/** Asks before something is done. */
export function confirm(title, text, action, kind = "danger") {
  return dialog(title, close => [
    ...[text].flat().map(part => (typeof part === "string" ? h("p", null, part) : part)),
    h(
      "footer",
      null,
      button("Cancel", () => close(false)),
      button(action, () => close(true), { kind }),
    ),
  ])
}

/** A page without content: the reason, and the commands that fill it. */
export function empty(title, text, ...commands) {
  return h(
    "div.empty",
    null,
    h("h2", null, title),
    text && h("p", null, text),
    commands.map(command => h("div.command", null, h("code", null, command), copyButton(command, "Copy the command"))),
  )
}

export function pill(text, kind = "", title) {
  return h("span.pill", { class: kind, title }, text)
}

// The sign beside the colour of each status.
const SIGNS = { passing: "●", warning: "▲", critical: "✕", none: "○" }

/** A check's status, by colour, sign and word. */
export function status(name, text = name) {
  return h("span.status", { class: name }, h("span.sign", { "aria-hidden": "true" }, SIGNS[name] ?? "○"), text)
}

/** A list of names and values. */
export function facts(pairs) {
  return h(
    "dl.facts",
    null,
    pairs
      .filter(pair => pair && pair[1] !== undefined && pair[1] !== null && pair[1] !== "")
      .map(([name, ...value]) => h("div", null, h("dt", null, name), h("dd", null, ...value))),
  )
}

let panels = 0

/** A tab list; `entries` are [name, function that makes the content]. `extra` stands beside the tabs. */
export function tabs(label, entries, { selected = 0, onselect, extra } = {}) {
  const panel = h("div.tab-panel", { role: "tabpanel", tabindex: "0", id: `panel${++panels}` })
  const show = (index, focus) => {
    buttons.forEach((tab, at) => {
      tab.setAttribute("aria-selected", at === index)
      tab.tabIndex = at === index ? 0 : -1
    })
    panel.setAttribute("aria-label", entries[index][0])
    panel.replaceChildren(...[entries[index][1]()].flat())
    if (focus) buttons[index].focus()
    onselect?.(index)
  }
  const move = (event, index) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key]
    if (step) show((index + step + entries.length) % entries.length, true)
  }
  const buttons = entries.map(([name], index) =>
    h(
      "button",
      {
        role: "tab",
        type: "button",
        "aria-controls": panel.id,
        onclick: () => show(index),
        onkeydown: event => move(event, index),
      },
      name,
    ),
  )
  show(Math.min(selected, entries.length - 1))
  return h(
    "div.tabs",
    null,
    h("div.tab-line", null, h("div.tab-list", { role: "tablist", "aria-label": label }, buttons), extra),
    panel,
  )
}

/** A choice of one of a few, as buttons in a row. */
export function choice(label, options, selected, onselect) {
  const buttons = options.map(([value, text]) =>
    h(
      "button",
      {
        type: "button",
        "aria-pressed": String(value === selected),
        onclick: event => {
          for (const other of buttons) other.setAttribute("aria-pressed", String(other === event.currentTarget))
          onselect(value)
        },
      },
      text,
    ),
  )
  return h("div.choice", { role: "group", "aria-label": label }, buttons)
}

/** Calls `action` at most once a frame. */
export function perFrame(action) {
  let handle = 0
  const call = () => {
    handle ||= requestAnimationFrame(() => {
      handle = 0
      action()
    })
  }
  call.cancel = () => cancelAnimationFrame(handle)
  return call
}

/** Calls `action` in a frame, at most once in `ms`: for work that grows with what is known. */
export function paced(action, ms) {
  let last = -Infinity
  let timer = 0
  const frame = perFrame(() => {
    last = performance.now()
    action()
  })
  const call = () => {
    timer ||= setTimeout(
      () => {
        timer = 0
        frame()
      },
      Math.max(0, last + ms - performance.now()),
    )
  }
  call.cancel = () => {
    clearTimeout(timer)
    frame.cancel()
  }
  return call
}

/** Calls `action` once no call came for `ms`. */
export function debounce(action, ms) {
  let handle = 0
  return (...values) => {
    clearTimeout(handle)
    handle = setTimeout(() => action(...values), ms)
  }
}

const NUMBER = new Intl.NumberFormat("en")
/** A number with separators. */
export const number = value => NUMBER.format(Number(value ?? 0))

/** Bytes with a binary unit. */
export function bytes(value) {
  let count = Number(value ?? 0)
  for (const unit of ["B", "KiB", "MiB", "GiB", "TiB"]) {
    if (count < 1024 || unit === "TiB")
      return `${count < 10 && unit !== "B" ? count.toFixed(1) : Math.round(count)} ${unit}`
    count /= 1024
  }
}

/** A duration in seconds, in its largest two units. */
export function duration(seconds) {
  const whole = Math.max(0, Math.round(seconds))
  if (whole < 60) return `${whole} s`
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${whole % 60 ? `${whole % 60} s` : ""}`.trim()
  if (whole < 86400) return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} min`
  return `${Math.floor(whole / 86400)} d ${Math.floor((whole % 86400) / 3600)} h`
}

const two = (value, width = 2) => String(value).padStart(width, "0")

/** A time of day, with the date if it is another day. */
export function time(ms, { millis = false } = {}) {
  if (!ms) return "unknown time"
  const at = new Date(Number(ms))
  const clock = `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`
  const day =
    at.toDateString() === new Date().toDateString()
      ? ""
      : `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} `
  return `${day}${clock}${millis ? `.${two(at.getMilliseconds(), 3)}` : ""}`
}
