// Streams of changes: `/v1/watch`, resumed after the last closed group, so that nothing is lost or seen twice.

import { link, lines, pause, Refused, send } from "./api.js"
import { whole } from "./store.js"

// The server sends a line at least every 15 seconds.
const SILENCE_MS_MAX = 25000
const PAUSE_MS_MAX = 4000
// gRPC's codes after which the same request can succeed.
const TRANSIENT = new Set([4, 8, 14, undefined])
const FAILED_PRECONDITION = 9

/** Waits until the page is looked at: a browser opens six connections to a server, and its other pages need some. */
function shown(signal) {
  return new Promise(resolve => {
    const done = () => {
      if (document.hidden && !signal.aborted) return
      document.removeEventListener("visibilitychange", done)
      signal.removeEventListener("abort", done)
      resolve()
    }
    document.addEventListener("visibilitychange", done)
    signal.addEventListener("abort", done)
    done()
  })
}

/**
 * Runs one stream of lines, again and again. `open` makes the response; `take` gets each line; both may throw
 * `Refused`. `restart` is called when the position of the stream is gone.
 */
async function repeat(part, signal, open, take, restart, denied) {
  let wait = 250
  while (!signal.aborted) {
    await shown(signal)
    const attempt = new AbortController()
    const stop = () => attempt.abort()
    const hide = () => document.hidden && stop()
    signal.addEventListener("abort", stop)
    document.addEventListener("visibilitychange", hide)
    // After a silence it is tried anew: that fails, if the node does not answer.
    let isSilent = false
    const listen = () =>
      setTimeout(() => {
        isSilent = true
        stop()
      }, SILENCE_MS_MAX)
    let silence = listen()
    try {
      const response = await open(attempt.signal)
      link.report(part, true)
      for await (const line of lines(response)) {
        clearTimeout(silence)
        silence = listen()
        if (line.error)
          throw new Refused(line.error.message ?? "the stream ended", 0, line.error.code ?? line.error.grpc_code)
        wait = 250
        take(line.result ?? line)
      }
    } catch (error) {
      if (signal.aborted) break
      if (error instanceof Refused && error.code === FAILED_PRECONDITION) {
        restart()
        wait = 50
      } else if (error instanceof Refused && (error.isDenied || (!TRANSIENT.has(error.code) && error.status !== 503))) {
        link.forget(part)
        denied(error)
        break
      }
    } finally {
      clearTimeout(silence)
      attempt.abort()
      signal.removeEventListener("abort", stop)
      document.removeEventListener("visibilitychange", hide)
    }
    if (signal.aborted || document.hidden || isSilent) continue
    link.report(part, false)
    await pause(wait, signal)
    wait = Math.min(wait * 2, PAUSE_MS_MAX)
  }
  link.forget(part)
}

/**
 * Follows a target of the watcher. `from` is "state" or "now". The callbacks:
 * - `group(changes, isState)`: an atomic group; the first one is the state if that was asked for.
 * - `ready()`: the stream has begun; everything later will come.
 * - `restart()`: changes were lost to compaction; the state follows anew, or `ready` is called again.
 * - `denied(error)`: the stream is over.
 */
export class Follow {
  #stop = new AbortController()
  #marker
  #open = []
  #isState

  constructor(target, { from = "state", group, ready = () => {}, restart = () => {}, denied = () => {} }) {
    this.target = target
    const begin = () => {
      this.#marker = from === "now" ? "bm93" : undefined
      this.#isState = from === "state"
      this.#open = []
    }
    begin()
    const open = signal => {
      this.#open = []
      const query = new URLSearchParams({ target })
      if (this.#marker) query.set("resume_marker", this.#marker)
      return send(`/v1/watch?${query}`, { signal })
    }
    const take = batch => {
      for (const change of batch.changes ?? []) {
        this.#open.push(change)
        if (change.continued) continue
        const changes = this.#open
        this.#open = []
        if (change.resumeMarker) this.#marker = change.resumeMarker
        if (change.state === "INITIAL_STATE_SKIPPED") ready()
        else {
          group(changes, this.#isState)
          if (this.#isState) ready()
          this.#isState = false
        }
      }
    }
    const restarted = () => {
      begin()
      restart()
    }
    repeat(this, this.#stop.signal, open, take, restarted, denied)
  }

  stop() {
    this.#stop.abort()
  }
}

/** Follows the history of everything, or of targets, as it is written. `request` gives the request from `reached` on. */
export class FollowHistory {
  #stop = new AbortController()
  #reached
  // The beginning of a command that is larger than one message.
  #open

  constructor(request, { from, commands, ready = () => {}, restart = () => {}, denied = () => {} }) {
    this.#reached = from
    const open = signal => {
      this.#open = undefined
      const message = { ...request, live: true, from: { index: String(this.#reached) } }
      return send("/v1/store/history", { method: "POST", body: JSON.stringify(message), signal })
    }
    const take = answer => {
      let found
      ;[found, this.#open] = whole(answer.commands, this.#open)
      if (found.length) commands(found)
      if (answer.reached) this.#reached = answer.reached
      ready(answer)
    }
    repeat(this, this.#stop.signal, open, take, restart, denied)
  }

  set from(index) {
    this.#reached = index
  }

  stop() {
    this.#stop.abort()
  }
}
