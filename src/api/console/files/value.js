// Values as text, JSON and hex, and the differences of two values.

import { asText, fromBase64 } from "./api.js"
import { bytes as sizeOf, copyButton, h, tabs } from "./dom.js"

const LINES_MAX = 2000
const HEX_BYTES_MAX = 16384
const TEXT_CHARS_MAX = 200000

/** The JSON of a text, as an object or list; undefined for anything else. */
function parsedJson(text) {
  if (text === null || !/^\s*[[{]/.test(text)) return undefined
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

/** A dump of bytes: offset, hexadecimal, text. */
export function hexDump(data) {
  const rows = []
  const shown = data.subarray(0, HEX_BYTES_MAX)
  for (let at = 0; at < shown.length; at += 16) {
    const part = [...shown.subarray(at, at + 16)]
    const digits = part.map(byte => byte.toString(16).padStart(2, "0"))
    const text = part.map(byte => (byte >= 32 && byte < 127 ? String.fromCharCode(byte) : "·")).join("")
    rows.push(
      `${at.toString(16).padStart(8, "0")}  ${digits.slice(0, 8).join(" ").padEnd(23)}  ${digits.slice(8).join(" ").padEnd(23)}  ${text}`,
    )
  }
  if (shown.length < data.length) rows.push(`… ${data.length - shown.length} more bytes`)
  return rows.join("\n")
}

const TOKEN = /("(?:[^"\\]|\\.)*")(\s*:)?|(-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?)|(true|false|null)/g

/** JSON with coloured names and values. */
function jsonView(value) {
  const text = JSON.stringify(value, null, 2)
  const view = h("code", null)
  if (text.length > TEXT_CHARS_MAX) {
    view.append(text.slice(0, TEXT_CHARS_MAX), "…")
    return h("pre.value", { tabindex: "0" }, view)
  }
  let at = 0
  for (const match of text.matchAll(TOKEN)) {
    view.append(text.slice(at, match.index))
    const kind = match[1] ? (match[2] ? "name" : "string") : match[3] ? "number" : "word"
    view.append(h(`span.${kind}`, null, match[1] ?? match[0]), match[2] ?? "")
    at = match.index + match[0].length
  }
  view.append(text.slice(at))
  return h("pre.value", { tabindex: "0" }, view)
}

/** The three forms of a value, the best one first. */
export function valueView(data) {
  const text = asText(data)
  const json = parsedJson(text)
  const textual = () =>
    h("pre.value", { tabindex: "0" }, text.length > TEXT_CHARS_MAX ? `${text.slice(0, TEXT_CHARS_MAX)}…` : text)
  const forms = []
  if (text !== null) forms.push(["Text", textual])
  if (json !== undefined) forms.push(["JSON", () => jsonView(json)])
  forms.push(["Hex", () => h("pre.value.hex", { tabindex: "0" }, hexDump(data))])
  const extra = h(
    "span.tab-extra",
    null,
    sizeOf(data.length),
    text !== null && text.length < 10000 && copyButton(text, "Copy the value"),
  )
  return tabs("Form of the value", forms, { selected: json === undefined ? 0 : 1, extra })
}

/** The lines that stand for a value in a comparison. */
export function comparable(data) {
  const text = asText(data)
  if (text === null) return hexDump(data).split("\n")
  const json = parsedJson(text)
  return (json === undefined ? text : JSON.stringify(json, null, 2)).split("\n")
}

/** The steps from lines `a` to lines `b`: [sign, line of a, line of b], sign "=", "-" or "+". */
export function diffLines(a, b) {
  let begin = 0
  while (begin < a.length && begin < b.length && a[begin] === b[begin]) begin++
  let end = 0
  while (end < a.length - begin && end < b.length - begin && a[a.length - 1 - end] === b[b.length - 1 - end]) end++
  const left = a.slice(begin, a.length - end)
  const right = b.slice(begin, b.length - end)
  const steps = a.slice(0, begin).map((_, at) => ["=", at, at])
  if (left.length * right.length > 1_000_000) {
    left.forEach((_, at) => steps.push(["-", begin + at]))
    right.forEach((_, at) => steps.push(["+", undefined, begin + at]))
  } else {
    // Longest common subsequence: lengths from each pair of positions on.
    const width = right.length + 1
    const lengths = new Uint32Array((left.length + 1) * width)
    for (let i = left.length - 1; i >= 0; i--) {
      for (let j = right.length - 1; j >= 0; j--) {
        lengths[i * width + j] =
          left[i] === right[j]
            ? lengths[(i + 1) * width + j + 1] + 1
            : Math.max(lengths[(i + 1) * width + j], lengths[i * width + j + 1])
      }
    }
    let [i, j] = [0, 0]
    while (i < left.length || j < right.length) {
      if (i < left.length && j < right.length && left[i] === right[j]) steps.push(["=", begin + i++, begin + j++])
      else if (j >= right.length || (i < left.length && lengths[(i + 1) * width + j] >= lengths[i * width + j + 1]))
        steps.push(["-", begin + i++])
      else steps.push(["+", undefined, begin + j++])
    }
  }
  for (let at = end; at > 0; at--) steps.push(["=", a.length - at, b.length - at])
  return steps
}

/** Two lists of lines side by side, differences marked; long equal parts are folded. */
export function sideBySide(a, b, titles) {
  const steps = diffLines(a.slice(0, LINES_MAX), b.slice(0, LINES_MAX))
  const rows = []
  const near = at => steps.slice(Math.max(0, at - 3), at + 4).some(step => step[0] !== "=")
  const line = (sign, text, name) =>
    h("td", { class: sign }, h("span.gutter", { "aria-hidden": "true" }, name), text ?? "")
  for (let at = 0; at < steps.length; at++) {
    const [sign, left, right] = steps[at]
    if (sign === "=") {
      if (steps.length > 20 && !near(at)) {
        const from = at
        while (at + 1 < steps.length && !near(at + 1)) at++
        rows.push(h("tr.fold", null, h("td", { colSpan: 2 }, `${at - from + 1} equal lines`)))
      } else rows.push(h("tr", null, line("", a[left], ""), line("", b[right], "")))
    } else if (sign === "-" && steps[at + 1]?.[0] === "+") {
      rows.push(h("tr", null, line("removed", a[left], "−"), line("added", b[steps[++at][2]], "+")))
    } else if (sign === "-") rows.push(h("tr", null, line("removed", a[left], "−"), line("none", "", "")))
    else rows.push(h("tr", null, line("none", "", ""), line("added", b[right], "+")))
  }
  if (!steps.some(step => step[0] !== "=")) rows.push(h("tr.fold", null, h("td", { colSpan: 2 }, "No difference")))
  return h(
    "div.diff",
    { tabindex: "0", role: "region", "aria-label": "Comparison" },
    h(
      "table",
      null,
      h(
        "thead",
        null,
        h(
          "tr",
          null,
          titles.map(title => h("th", { scope: "col" }, title)),
        ),
      ),
      h("tbody", null, rows),
    ),
  )
}

/** Lines of any entity's data, for people: decoded values, sorted names, without what every change moves. */
export function entityLines(entity) {
  if (!entity) return []
  const data = entity.data ?? {}
  const type = data["@type"] ?? ""
  if (type.endsWith("mvccpb.KeyValue")) return comparable(fromBase64(data.value))
  return JSON.stringify(sorted(data), null, 2).split("\n")
}

const VOLATILE = new Set(["@type", "RaftIndex", "generation"])
const isDefault = value =>
  ["", "0s", "0", 0, false, null].includes(value) || (typeof value === "object" && Object.keys(value).length === 0)

function sorted(value) {
  if (Array.isArray(value)) return value.map(sorted)
  if (value === null || typeof value !== "object") return value
  const members = Object.keys(value)
    .filter(key => !VOLATILE.has(key))
    .sort()
    .map(key => [key, sorted(value[key])])
  return Object.fromEntries(members.filter(member => !isDefault(member[1])))
}
