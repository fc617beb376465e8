// Requests to the node that served this page: public APIs only, with the credentials that the user gave.

/** Credentials of this browser tab, and the events "denied" and "changed". */
export const session = new (class extends EventTarget {
  /** `{ kind: "user" | "token", name, secret }`; null without credentials. */
  get credentials() {
    return JSON.parse(sessionStorage.getItem("credentials"))
  }

  set credentials(value) {
    if (value) sessionStorage.setItem("credentials", JSON.stringify(value))
    else sessionStorage.removeItem("credentials")
    this.dispatchEvent(new Event("changed"))
  }

  headers() {
    const credentials = this.credentials
    if (!credentials) return {}
    return credentials.kind === "user"
      ? { authorization: credentials.secret }
      : { "x-consul-token": credentials.secret }
  }
})()

/** Whether the node answers; the event "changed" tells of a change. */
export const link = new (class extends EventTarget {
  isUp = true
  #failed = new Set()

  /** Reports the last outcome of one part of the page. */
  report(part, isUp) {
    if (isUp) this.#failed.delete(part)
    else this.#failed.add(part)
    const now = this.#failed.size === 0
    if (now === this.isUp) return
    this.isUp = now
    this.dispatchEvent(new Event("changed"))
  }

  forget(part) {
    this.report(part, true)
  }
})()

/** A refusal or an error of the server. `code` is gRPC's if the answer has one. */
export class Refused extends Error {
  constructor(message, status, code) {
    super(message)
    this.status = status
    this.code = code
  }

  get isDenied() {
    return this.status === 401 || this.status === 403 || this.code === 16 || this.code === 7
  }
}

async function refusal(response) {
  const text = await response.text()
  let parsed = {}
  try {
    parsed = JSON.parse(text)
  } catch {
    // Consul's paths answer in plain text.
  }
  const refused = new Refused(
    parsed.message ?? parsed.error ?? (text.trim() || response.statusText),
    response.status,
    parsed.code,
  )
  if (refused.isDenied) session.dispatchEvent(new CustomEvent("denied", { detail: refused }))
  return refused
}

/** Sends a request, and returns the response if it is no error. */
export async function send(path, { method = "GET", body, headers, signal } = {}) {
  const request = { method, body, signal, cache: "no-store", headers: { ...session.headers(), ...headers } }
  let response
  try {
    response = await fetch(path, request)
  } catch (error) {
    if (error.name !== "AbortError") {
      link.report("request", false)
      throw new Error(`${location.host} does not answer`)
    }
    throw error
  }
  link.report("request", true)
  if (!response.ok) throw await refusal(response)
  return response
}

/** The JSON of a `GET`. */
export const get = async (path, options) => (await send(path, options)).json()

/** The answer of a method of the gateway. */
export const rpc = async (path, message = {}, options) =>
  (await send(path, { method: "POST", body: JSON.stringify(message), ...options })).json()

/** The objects of a body with one JSON object a line, as they arrive. */
export async function* lines(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader()
  let parts = []
  try {
    for (;;) {
      const { value, done } = await reader.read()
      if (done) return
      let from = 0
      for (let end; (end = value.indexOf("\n", from)) >= 0; from = end + 1) {
        parts.push(value.slice(from, end))
        const line = parts.join("")
        parts = []
        if (line) yield JSON.parse(line)
      }
      parts.push(value.slice(from))
    }
  } finally {
    reader.cancel().catch(() => {})
  }
}

/** A pause that ends early when the browser is online again or the page is looked at. */
export function pause(ms, signal) {
  return new Promise(resolve => {
    const done = () => {
      clearTimeout(handle)
      removeEventListener("online", done)
      signal?.removeEventListener("abort", done)
      resolve()
    }
    const handle = setTimeout(done, ms)
    addEventListener("online", done)
    signal?.addEventListener("abort", done)
  })
}

const decoder = new TextDecoder("utf-8", { fatal: true })
const encoder = new TextEncoder()

/** Bytes of base64. */
export function fromBase64(text) {
  return Uint8Array.from(atob(text ?? ""), char => char.charCodeAt(0))
}

/** Base64 of bytes or of text. */
export function toBase64(data) {
  const bytes = typeof data === "string" ? encoder.encode(data) : data
  let binary = ""
  for (let at = 0; at < bytes.length; at += 8192) binary += String.fromCharCode(...bytes.subarray(at, at + 8192))
  return btoa(binary)
}

/** Bytes as text; null if they are no UTF-8. */
export function asText(bytes) {
  try {
    return decoder.decode(bytes)
  } catch {
    return null
  }
}

export const utf8 = text => encoder.encode(text)

/** A field of a message, by its name in the proto or in camel case. */
export function field(message, name) {
  return message?.[name] ?? message?.[name.replace(/_(.)/g, (_, letter) => letter.toUpperCase())]
}
