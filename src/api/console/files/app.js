// The frame around the pages: navigation, credentials, the state of the connection, theme and keyboard.

import { get, link, rpc, session } from "./api.js"
import { button, choice, dialog, fail, fill, h, icon, iconButton, say } from "./dom.js"
import { cluster } from "./cluster.js"
import { history } from "./history.js"
import { keys } from "./keys.js"
import { leases } from "./leases.js"
import { moment, TimeBar } from "./moment.js"
import { resources } from "./resources.js"
import { services } from "./services.js"

const PAGES = { cluster, keys, services, resources, leases, history }
const TITLES = {
  cluster: "Cluster",
  keys: "Keys",
  services: "Services",
  resources: "Resources",
  leases: "Leases",
  history: "History",
}
const NAMES = Object.keys(PAGES)

const bar = new TimeBar()
let settings = { ui: "read" }
let leave = () => {}
let shown = ""

/** Parts and parameters of the address. */
function route() {
  const [path, query] = location.hash.replace(/^#\/?/, "").split("?")
  const [name, ...parts] = path.split("/").map(part => decodeURIComponent(part))
  return {
    name: name in PAGES ? name : "cluster",
    parts: parts.filter(part => part !== ""),
    query: new URLSearchParams(query),
  }
}

function show() {
  const { name, parts, query } = route()
  // A page may take a change of the address by itself.
  if (shown === name && leave.move?.(parts, query)) return
  leave()
  const main = document.getElementById("main")
  main.className = `page-${name}`
  main.replaceChildren()
  document.title = `${TITLES[name]} · Headwater`
  for (const item of document.querySelectorAll("nav a")) {
    if (item.dataset.page === name) item.setAttribute("aria-current", "page")
    else item.removeAttribute("aria-current")
  }
  shown = name
  const stop = new AbortController()
  const context = {
    parts,
    query,
    settings,
    bar,
    signal: stop.signal,
    at: moment.at,
    canWrite: settings.ui === "write" && !moment.at,
  }
  const cleanup = PAGES[name](main, context)
  leave = () => {
    stop.abort()
    cleanup?.stop?.()
  }
  leave.move = cleanup?.move
}

function reshow() {
  shown = ""
  show()
}

// ---- credentials

let isAsking = false

async function login(reason) {
  if (isAsking) return
  isAsking = true
  const credentials = await dialog("Sign in", close => {
    let kind = "user"
    const name = h("input", { name: "name", autocomplete: "username", required: true })
    const password = h("input", {
      name: "password",
      type: "password",
      autocomplete: "current-password",
      required: true,
    })
    const token = h("input", { name: "token", type: "password", autocomplete: "off" })
    const user = h("div.fields", null, h("label", null, "User", name), h("label", null, "Password", password))
    const secret = h("div.fields", { hidden: true }, h("label", null, "Consul token", token))
    const problem = h("p.problem", { role: "alert" })
    return h(
      "form",
      {
        onsubmit: async event => {
          event.preventDefault()
          try {
            if (kind === "token") close({ kind, name: "token", secret: token.value.trim() })
            else {
              const { token: secret } = await rpc("/v3/auth/authenticate", {
                name: name.value,
                password: password.value,
              })
              close({ kind, name: name.value, secret })
            }
          } catch (error) {
            problem.textContent = error.message
          }
        },
      },
      reason && h("p", null, `The node refused: ${reason}.`),
      choice(
        "Kind of credentials",
        [
          ["user", "User"],
          ["token", "Consul token"],
        ],
        kind,
        chosen => {
          kind = chosen
          user.hidden = kind !== "user"
          secret.hidden = kind !== "token"
          for (const input of [name, password]) input.required = kind === "user"
          token.required = kind === "token"
        },
      ),
      user,
      secret,
      problem,
      h("p.note", null, "Kept in this tab until it is closed. Every request has the rights of these credentials."),
      h("footer", null, h("button.button.primary", { type: "submit" }, "Sign in")),
    )
  })
  isAsking = false
  if (credentials) session.credentials = credentials
}

async function account() {
  const credentials = session.credentials
  if (!credentials) return login()
  const out = await dialog("Signed in", close => [
    h("p", null, credentials.kind === "user" ? `As the user ${credentials.name}.` : "With a Consul token."),
    h(
      "footer",
      null,
      button("Use others", () => close("login")),
      button("Sign out", () => close("out"), { kind: "primary" }),
    ),
  ])
  if (out) session.credentials = null
  if (out === "login") login()
}

// ---- frame

function theme(next) {
  const chosen = next ?? localStorage.getItem("theme") ?? "auto"
  localStorage.setItem("theme", chosen)
  if (chosen === "auto") delete document.documentElement.dataset.theme
  else document.documentElement.dataset.theme = chosen
  dispatchEvent(new Event("themed"))
}

function switchTheme() {
  const shown =
    document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")
  theme(shown === "dark" ? "light" : "dark")
}

let members = []

/** The same page of the console on another member. */
function others() {
  return members
    .filter(url => new URL(url).host !== location.host)
    .map(url => h("a", { href: `${url}/ui/${location.hash}` }, new URL(url).host))
}

let downTimer = 0
function showLink() {
  const banner = document.getElementById("banner")
  clearTimeout(downTimer)
  if (link.isUp) {
    if (banner.childElementCount) say("Connected again. Nothing was missed.")
    banner.replaceChildren()
    document.body.classList.remove("down")
    return
  }
  // A stream that ends and begins again at once is nothing to tell.
  downTimer = setTimeout(() => {
    document.body.classList.add("down")
    fill(
      banner,
      h(
        "p",
        null,
        h("strong", null, `${location.host} does not answer. `),
        "Reconnecting; what happens meanwhile will be shown. ",
        members.length > 1 ? h("span", null, "Other members: ", ...others().flatMap(item => [item, " "])) : "",
      ),
    )
  }, 700)
}

function shortcuts() {
  const row = (key, text) =>
    h(
      "div",
      null,
      h(
        "dt",
        null,
        key.split(" ").map(part => h("kbd", null, part)),
      ),
      h("dd", null, text),
    )
  return dialog("Keyboard", () =>
    h(
      "dl.shortcuts",
      null,
      NAMES.map((name, index) => row(String(index + 1), TITLES[name])),
      row("/", "Filter the page"),
      row("↑ ↓", "Move in a list; Enter opens"),
      row("← →", "Close or open a branch"),
      row("[ ]", "One change back, one forward"),
      row("n", "Back to now"),
      row("p", "Pause or continue the history"),
      row("e", "Edit what is shown"),
      row("d", "Dark or light"),
      row("?", "This list"),
    ),
  )
}

function keydown(event) {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.closest("input, textarea, select, dialog")) return
  const page = NAMES[Number(event.key) - 1]
  const action = page
    ? () => {
        location.hash = `#/${page}`
      }
    : {
        "/": () => document.querySelector("#main input[type=search]")?.focus(),
        "[": () => bar.step(-1),
        "]": () => bar.step(1),
        n: () => bar.now(),
        d: switchTheme,
        p: () => document.querySelector("[data-key=p]")?.click(),
        e: () => document.querySelector("[data-key=e]")?.click(),
        "?": shortcuts,
      }[event.key]
  if (!action) return
  event.preventDefault()
  action()
}

function frame() {
  document.body.append(
    h(
      "a.skip",
      {
        href: "#main",
        onclick: event => {
          event.preventDefault()
          document.getElementById("main").focus()
        },
      },
      "Skip to the page",
    ),
    h(
      "header.top",
      null,
      h(
        "a.brand",
        { href: "#/cluster", "aria-label": "Headwater, cluster" },
        h("img", { src: "icon.svg", alt: "", width: "22", height: "22" }),
        h("span", null, "Headwater"),
      ),
      h("span.member", { id: "member" }),
      bar.element,
      h(
        "div.tools",
        null,
        iconButton("help", "Keyboard", shortcuts),
        iconButton("theme", "Dark or light", switchTheme),
        iconButton("user", "Sign in", account, { id: "account" }),
      ),
    ),
    h(
      "nav",
      { "aria-label": "Pages" },
      NAMES.map((name, index) =>
        h(
          "a",
          { href: `#/${name}`, "data-page": name, title: `${TITLES[name]} (${index + 1})` },
          icon(name),
          h("span", null, TITLES[name]),
        ),
      ),
    ),
    h("div", { id: "banner", role: "status" }),
    h("main", { id: "main", tabindex: "-1" }),
    h("div", { id: "messages", role: "status", "aria-live": "polite" }),
  )
}

async function start() {
  theme()
  frame()
  addEventListener("keydown", keydown)
  addEventListener("hashchange", show)
  link.addEventListener("changed", showLink)
  moment.addEventListener("changed", reshow)
  // A page that asks again and again tells of a refusal once.
  const denials = new Map()
  session.addEventListener("denied", event => {
    if (!session.credentials || event.detail.status === 401 || event.detail.code === 16) login(event.detail.message)
    else if (denials.get(event.detail.message) > Date.now() - 30000) return
    else fail(event.detail)
    denials.set(event.detail.message, Date.now())
  })
  const named = () => document.getElementById("account").classList.toggle("on", Boolean(session.credentials))
  session.addEventListener("changed", () => {
    named()
    reshow()
    bar.start(new AbortController().signal)
  })
  named()
  try {
    settings = await get("settings.json")
  } catch (error) {
    fail(error)
  }
  document.getElementById("member").textContent = settings.member ?? ""
  const point = route().query.get("at")
  if (point) await bar.go({ index: point })
  show()
  bar.start(new AbortController().signal)
  try {
    members = ((await rpc("/v3/cluster/member/list", { linearizable: false })).members ?? []).flatMap(
      member => member.clientURLs ?? [],
    )
  } catch {
    // Only the links to other members are missing.
  }
}

start()
