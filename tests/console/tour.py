"""Uses the console as a person does, page by page. tour.py PICTURES CLUSTER-SCRIPT PORT…

HEADWATER_CONSOLE_PARTS names the parts to run, such as "keys history", instead of all.
"""

import importlib.util
import json
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request
from base64 import b64decode, b64encode

from browser import Browser, Failed, program

PICTURES, CLUSTER = sys.argv[1:3]
PORTS = [int(port) for port in sys.argv[3:]]
# Findings of axe that count.
SERIOUS = ("serious", "critical")
MESSAGES = "document.querySelector('#messages')?.innerText"


def axe_source():
    found = importlib.util.find_spec("axe_playwright_python")
    with open(os.path.join(found.submodule_search_locations[0], "axe.min.js"), encoding="utf-8") as file:
        return file.read()


def url(path="", node=1):
    return f"http://127.0.0.1:{PORTS[node - 1]}{path}"


def ask(path, body=None, method=None, node=1, headers=None):
    """The answer of the API: JSON if it is JSON."""
    data = body if body is None or isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(
        url(path, node), data=data, method=method or ("POST" if body is not None else "GET"), headers=headers or {}
    )
    with urllib.request.urlopen(request, timeout=20) as response:
        text = response.read().decode()
    try:
        return json.loads(text)
    except ValueError:
        return text


def encoded(text):
    return b64encode(text.encode()).decode()


def put(key, value, node=1, headers=None):
    ask("/v3/kv/put", {"key": encoded(key), "value": encoded(value)}, node=node, headers=headers)


def stored(key, node=1):
    kvs = ask("/v3/kv/range", {"key": encoded(key)}, node=node).get("kvs")
    return b64decode(kvs[0].get("value", "")).decode() if kvs else None


def register(service, number, status, output=""):
    node = f"host{number}"
    ask(
        "/v1/catalog/register",
        method="PUT",
        body={
            "Node": node,
            "Address": f"10.0.0.{number}",
            "Service": {
                "ID": f"{service}-{number}",
                "Service": service,
                "Port": 8000 + number,
                "Tags": [f"v{number}"],
                "Meta": {"rack": f"r{number}"},
            },
            "Checks": [
                {
                    "Node": node,
                    "CheckID": f"http-{service}-{number}",
                    "Name": "HTTP",
                    "Status": status,
                    "Output": output,
                    "ServiceID": f"{service}-{number}",
                }
            ],
        },
    )


def instances(service):
    return [entry["Service"]["ID"] for entry in ask(f"/v1/health/service/{service}")]


def cluster(*command):
    subprocess.run([CLUSTER, *command], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def wait(check, reason, seconds=20):
    deadline = time.monotonic() + seconds
    while not check():
        if time.monotonic() > deadline:
            raise Failed(f"{reason}: not within {seconds} s")
        time.sleep(0.05)


class Tour:
    def __init__(self, browser):
        self.page = browser
        self.axe = axe_source()
        self.findings = []
        self.locks = []

    def step(self, text):
        print(f"  {text}", flush=True)

    def open(self, address, node=1):
        self.page.open(url(f"/ui/#/{address}", node))

    def go(self, address):
        self.page.run(f"location.hash = {json.dumps('#/' + address)}")

    def judge(self, name):
        """Lets axe look at the page, and keeps a picture of it."""
        for leak in ("[object ", "undefined", "NaN"):
            if leak in self.page.run("document.body.innerText"):
                self.findings.append((name, f"{leak!r} is shown"))
        self.page.run(f"if (!globalThis.axe) {{ {self.axe}\n }}")
        found = self.page.run(
            """axe.run(document, { resultTypes: ["violations"] }).then(result => result.violations.map(
            finding => ({ id: finding.id, impact: finding.impact, nodes: finding.nodes.map(node => `${node.target} ${node.any[0]?.message ?? ""}`).slice(0, 3) })))"""
        )
        self.findings += [(name, finding) for finding in found if finding["impact"] in SERIOUS]
        self.picture(name)

    def picture(self, name):
        self.page.picture(os.path.join(PICTURES, f"{name}.webp"))

    # ---- the store

    def fill(self):
        put("app/config", json.dumps({"debug": True, "limits": {"requests": 100, "burst": 20}}))
        put("app/config", json.dumps({"debug": False, "limits": {"requests": 250, "burst": 20}}))
        put("app/motd", "Welcome")
        for region, address in (("eu", "10.0.0.7:80"), ("us", "10.1.0.7:80")):
            put(f"app/region/{region}/endpoint", address)
        put("greeting", "hello")
        put("<img src=x onerror=alert(1)>", "<script>alert(1)</script>")
        for service in ("api", "cart", "pay", "search", "web"):
            for number in (1, 2, 3):
                status = {"cart2": "critical", "pay1": "warning"}.get(f"{service}{number}", "passing")
                register(service, number, status, f"GET /health: {status}")
        for _ in range(2):
            self.locks.append(
                subprocess.Popen(
                    [
                        os.environ["HEADWATER"],
                        "lock",
                        "nightly",
                        "--ttl",
                        "30s",
                        "--endpoints",
                        f"127.0.0.1:{PORTS[1]}",
                        "--",
                        "sleep",
                        "600",
                    ],
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
            )

    # ---- pages

    def shell(self):
        self.step("an empty address leads to the cluster; what a node serves loads nothing from elsewhere")
        self.page.open(url("/ui"))
        self.page.until("location.pathname === '/ui/' && document.title.startsWith('Cluster')", "the console opens")
        hosts = self.page.run(
            "[...new Set(performance.getEntriesByType('resource').map(entry => new URL(entry.name).host))]"
        )
        if hosts != [f"127.0.0.1:{PORTS[0]}"]:
            raise Failed(f"the page loads from {hosts}")

    def modules(self):
        self.step("rules of the modules: YAML, names, differences, undoing")
        self.open("cluster")
        self.page.until("document.readyState === 'complete'", "the page is there")
        with open(os.path.join(os.path.dirname(__file__), "modules.js"), encoding="utf-8") as file:
            wrong = self.page.run(file.read())
        if wrong:
            raise Failed("\n".join(wrong))

    def cluster(self):
        self.step("cluster: members, leader, figures, moving the leader")
        self.open("cluster")
        for node in ("node1", "node2", "node3"):
            self.page.shows(node, ".members")
        self.page.until(
            "[...document.querySelectorAll('.members tbody tr')].filter(row => row.innerText.includes('serves')).length === 3",
            "all members serve",
        )
        self.page.until(
            "document.querySelectorAll('.chart strong').length === 6 && [...document.querySelectorAll('.chart strong')].every(one => one.innerText !== '–')",
            "the charts have figures",
        )
        self.judge("cluster")
        leader = self.page.run("document.querySelector('.tile .figure').innerText")
        self.open("cluster", node=int(leader[-1]))
        self.page.shows("Make leader", ".members")
        follower = next(name for name in ("node1", "node2", "node3") if name != leader)
        self.page.run(
            f"[...document.querySelectorAll('.members tbody tr')].find(row => row.innerText.includes('{follower}')).querySelector('button').click()"
        )
        self.page.click("dialog .button.primary", "Move")
        self.page.until(f"document.querySelector('.tile .figure').innerText === '{follower}'", f"{follower} leads")

    def keys(self):
        self.step("keys: a tree that opens and lives")
        self.open("keys")
        self.page.click("[role=treeitem] .name", "app/")
        self.page.click("[role=treeitem] .name", "config")
        self.page.shows('"requests": 250', ".detail")
        put("app/new", "1")
        self.page.shows("new", "[role=tree]")
        put("app/motd", "Good day")
        self.judge("keys")
        self.page.click("[role=treeitem] .name", "motd")
        self.page.shows("Good day", ".detail")
        put("app/motd", "Good evening", node=2)
        self.page.shows("Good evening", ".detail")

        self.step("keys: editing, and an edit that comes too late")
        self.page.key("e")
        self.page.fill(".editor textarea", "Good night")
        self.page.click(".editor .button", "Save")
        wait(lambda: stored("app/motd") == "Good night", "the edit is stored")
        self.page.shows("Good night", ".detail .value")
        self.page.click(".actions .button", "Edit")
        self.page.fill(".editor textarea", "Mine")
        put("app/motd", "Theirs")
        self.page.shows("Changed meanwhile", ".notice")
        self.page.click(".editor .button", "Save")
        self.page.shows("Theirs", "dialog")
        if stored("app/motd") != "Theirs":
            raise Failed("the late edit was stored over the newer value")
        self.judge("conflict")
        self.page.click("dialog .button", "Write mine over it")
        wait(lambda: stored("app/motd") == "Mine", "the second edit is stored")

        self.step("keys: versions side by side")
        self.go("keys/app/config")
        self.page.shows('"requests": 250', ".detail")
        self.page.click("[role=tab]", "Versions")
        self.page.shows("+", ".diff")
        self.page.shows('"requests": 100', ".diff")
        self.judge("versions")

        self.step("keys: names that are markup are text")
        self.go("keys/" + "%3Cimg%20src%3Dx%20onerror%3Dalert(1)%3E")
        self.page.shows("<script>alert(1)</script>", ".detail")

        self.step("keys: a new one, and one that is deleted")
        self.page.click(".toolbar .button", "New key")
        self.page.fill("dialog input", "made/here")
        self.page.fill("dialog textarea", "yes")
        self.page.click("dialog .button", "Create")
        wait(lambda: stored("made/here") == "yes", "the new key is stored")
        self.page.shows("yes", ".detail .value")
        self.page.click(".actions .button", "Delete")
        self.page.click("dialog .button", "Delete")
        wait(lambda: stored("made/here") is None, "the key is deleted")
        self.page.shows("There is no such key", ".detail")

    def services(self):
        self.step("services: health lives, checks have their output")
        self.open("services")
        self.page.click("[role=row] .cell", "cart")
        self.page.shows("GET /health: critical", ".detail")
        self.page.shows("cart.service.consul", ".detail")
        self.judge("services")
        register("cart", 2, "passing", "GET /health: passing")
        self.page.lacks("critical", ".detail")
        self.page.click(".choice button", "Nodes")
        self.page.shows("3 nodes", ".foot")
        self.page.click("[role=row] .cell", "host2")
        self.page.shows("cart-2", ".detail")
        self.judge("nodes")

        self.step("services: an instance is taken away, by mistake")
        self.go("services/cart")
        self.page.until("document.querySelectorAll('.card').length === 3", "three instances")
        self.page.run(
            "[...document.querySelectorAll('.card')].find(card => card.innerText.includes('cart-2')).querySelector('.danger').click()"
        )
        self.page.click("dialog .button", "Deregister")
        wait(lambda: "cart-2" not in instances("cart"), "the instance is deregistered")
        self.page.lacks("cart-2", ".detail")

    def resources(self):
        self.step("resources: types, a table, owners")
        self.open("resources")
        self.page.click("[role=option] .name", "Album demo.v2")
        self.page.click("[role=row] .cell", "issues")
        self.page.shows("title: Issues", ".detail")
        self.page.click("[role=tab]", "Owners")
        self.page.shows("follow-the-leader", ".owners")
        self.judge("resources")

        self.step("resources: editing YAML; mistakes are named by line, by field, by rule")
        self.page.click("[role=tab]", "YAML")
        self.page.click(".actions .button", "Edit")
        text = self.page.run("document.querySelector('.yaml').value")
        self.page.fill(".yaml", text.replace("title: Issues", "title: Issues\n   yearOfRelease: 1"))
        self.page.click(".editor .button", "Save")
        self.page.shows("line", ".editor .problem")
        self.page.fill(".yaml", text.replace("title:", "titel:"))
        self.page.click(".editor .button", "Save")
        self.page.shows("titel", ".editor .problem")
        self.page.fill(".yaml", text.replace("title: Issues", "title: Issues, remastered"))
        self.judge("edit-resource")
        self.page.click(".editor .button", "Save")
        self.page.shows("Issues, remastered", ".detail .value")
        title = ask("/api/demo/v2/album/issues?consistent")["data"]["title"]
        if title != "Issues, remastered":
            raise Failed(f"the title is {title}")

    def leases(self):
        self.step("leases, and a lock with its queue")
        self.open("leases")
        self.page.shows("nightly/", ".list")
        self.judge("leases")
        self.page.click(".choice button", "Locks and elections")
        self.page.shows("Lock or election", ".head")
        self.page.click("[role=row] .cell", "nightly")
        self.page.shows("holds", ".detail")
        self.page.until("document.querySelectorAll('.detail tbody tr').length === 2", "holder and contender")
        self.judge("locks")
        self.page.click(".choice button", "Sessions")
        self.page.shows("No sessions")
        ask("/v1/session/create", method="PUT", body={"Name": "worker", "TTL": "600s"})
        self.page.shows("worker", ".list")

    def history(self):
        self.step("history: lives, pauses, is filtered")
        self.open("history")
        self.page.shows("services/cart/host2/cart-2", ".list")
        put("greeting", "good day")
        self.page.until(
            "document.querySelector('.row')?.innerText.includes('greeting')", "the newest change is the first"
        )
        self.page.key("p")
        put("paused/1", "1")
        self.page.shows("1 new", ".toolbar")
        self.page.lacks("paused/1", ".list")
        self.page.key("p")
        self.page.shows("paused/1", ".list")
        self.page.fill("input[type=search]", "/services")
        self.page.lacks("kv/", ".list")
        self.page.shows("services/cart", ".list")
        self.page.until(
            "document.querySelector('.row').innerText.includes('cart-2')", "the deregistration is the newest"
        )
        self.page.click("[role=row] .cell", "services/cart/host2/cart-2")
        self.page.shows("cart-2", ".detail .value.removed")
        self.judge("history")

        self.step("back in time: every page shows that moment, and changes nothing")
        self.page.click(".detail .button", "The moment before")
        self.page.until("document.body.classList.contains('past')", "the moment before is shown")
        self.go("services/cart")
        self.page.shows("cart-2", ".detail")
        if self.page.run("document.querySelectorAll('.danger').length"):
            raise Failed("the past can be changed")
        self.judge("past")
        self.go("keys/greeting")
        self.page.shows("hello", ".detail .value")
        self.go("resources/demo/v2/Album/default/default/issues")
        self.page.shows("title: Issues", ".detail")
        self.page.key("n")
        self.go("services/cart")
        self.page.until(
            "!document.body.classList.contains('past') && document.querySelectorAll('.card').length === 2",
            "now is shown again",
        )

        self.step("the slider")
        self.page.run(
            "(() => { const slider = document.querySelector('.time-bar input'); slider.value = 0; slider.dispatchEvent(new Event('input')) })()"
        )
        self.page.until("document.body.classList.contains('past')", "the slider goes to the oldest moment")
        self.page.shows("There were none at this moment", ".pane")
        self.page.key("n")
        self.page.until("!document.body.classList.contains('past')", "now")

    def title(self, name):
        try:
            return ask(f"/api/demo/v2/album/{name}?consistent")["data"]["title"]
        except urllib.error.HTTPError:
            return None

    @staticmethod
    def moving(service):
        return {"Node": "fresh", "Address": "10.0.0.9", "Service": {"ID": "moving", "Service": service}}

    def open_newest(self, target, text):
        """Opens the newest change below a target, whose row has a text."""
        self.open(f"history?target={target.replace('/', '%2F')}&{text.replace(' ', '')}")
        self.page.until(
            f"document.querySelector('.row')?.innerText.includes({json.dumps(text)})", f"{text} is the newest"
        )
        self.page.click("[role=row] .cell", text)

    def undo_newest(self, target, text, notice="in one commit"):
        self.open_newest(target, text)
        self.page.click(".detail .button", "Undo this")
        self.page.shows(notice, "dialog")
        self.page.click("dialog .button", "Undo")

    def undo(self):
        self.step("the deregistration is undone")
        self.open("history?target=%2Fservices")
        self.page.until(
            "document.querySelector('.row')?.innerText.includes('cart-2')", "the deregistration is the newest"
        )
        self.page.click("[role=row] .cell", "services/cart/host2/cart-2")
        self.page.click(".detail .button", "Undo this")
        self.page.shows("in one commit", "dialog")
        self.judge("undo")
        self.page.click("dialog .button", "Undo")
        wait(lambda: "cart-2" in instances("cart"), "the instance is back")

        self.step("so are a change of a resource, and its deletion")
        path = "/api/demo/v2/album/trash"
        ask(path, {"data": {"title": "Trash"}}, "PUT")
        for sign in ("~", "−"):
            if sign == "~":
                ask(path, {"data": {"title": "Treasure", "tracks": ["a"]}}, "PUT")
            else:
                ask(path, method="DELETE")
            self.open("history?target=%2Fresources%2Fdemo%2Fv2%2FAlbum")
            self.page.click("[role=row] .cell", f"{sign} resources/demo/v2/Album/default/default/trash")
            self.page.click(".detail .button", "Undo this")
            self.page.click("dialog .button", "Undo")
            wait(lambda: self.title("trash") == "Trash", f"{sign} is undone")

        self.step("an instance that moved to another service moves back")
        ask("/v1/catalog/register", method="PUT", body=self.moving("old"))
        ask("/v1/catalog/register", method="PUT", body=self.moving("new"))
        self.undo_newest("/services", "services/old/fresh/moving")
        wait(lambda: instances("old") == ["moving"] and not instances("new"), "the instance is back")

        self.step("a first registration is undone: its node stays, and what came to it later")
        ask("/v1/catalog/deregister", method="PUT", body={"Node": "fresh"})
        ask("/v1/catalog/register", method="PUT", body=self.moving("first"))
        ask("/v1/catalog/register", method="PUT", body={**self.moving("later"), "Service": {"Service": "later"}})
        self.undo_newest("/services/first", "services/first/fresh/moving", "nodes/fresh stays as it is")
        wait(lambda: not instances("first"), "the instance is gone")
        if instances("later") != ["later"]:
            raise Failed("what came later to the node has gone")

        self.step("a lease stays")
        lease = ask("/v3/lease/grant", {"TTL": 600})["ID"]
        for value in ("then", "now"):
            ask("/v3/kv/put", {"key": encoded("leased"), "value": encoded(value), "lease": lease})
        self.undo_newest("/kv/leased", "kv/leased")
        wait(lambda: stored("leased") == "then", "the value is back")
        if ask("/v3/kv/range", {"key": encoded("leased")})["kvs"][0].get("lease") != lease:
            raise Failed("the lease is lost")

        self.step("a key of Consul keeps its lock")
        session = ask("/v1/session/create", {}, "PUT")["ID"]
        for value in (b"then", b"now"):
            ask(f"/v1/kv/undone/lock?acquire={session}", value, "PUT")
        self.undo_newest("/kv/consul/kv/undone/lock", "kv/consul/kv/undone/lock")
        wait(lambda: stored("consul/kv/undone/lock") == "then", "the value is back")
        if ask("/v1/kv/undone/lock")[0].get("Session") != session:
            raise Failed("the lock is lost")

        self.step("too many changes for one commit are refused before")
        for start in (0, 100):
            puts = [{"request_put": {"key": encoded(f"many/{start + at}")}} for at in range(100)]
            ask("/v3/kv/txn", {"success": puts})
        ask("/v3/kv/deleterange", {"key": encoded("many/"), "range_end": encoded("many0")})
        self.open_newest("/kv/many", "and 199 more")
        self.page.click(".detail .button", "Undo this")
        self.page.shows("200 entities are too many for one commit: this node takes 128 (max-txn-ops)", "dialog")
        if self.page.run("[...document.querySelectorAll('dialog .button')].some(one => one.innerText === 'Undo')"):
            raise Failed("it can be undone all the same")
        self.page.click("dialog .button", "Cancel")

        self.step("two moments are compared; all that differs is undone, but not over newer changes")
        before = stored("app/config")
        since = ask("/v1/store/read", {"targets": ["/kv/greeting"]})["index"]
        for number in range(10):
            put("app/config", json.dumps({"debug": True, "broken": number}))
        put("app/other", "new")
        self.open(f"history/compare?from={since}")
        self.page.shows("2 entities differ")
        self.page.shows("app/other", ".list")
        self.page.shows('"broken": 9', ".detail")
        self.judge("compare")
        self.page.click(".toolbar .button", "Undo all of these")
        put("app/other", "newer")
        self.page.click("dialog .button", "Undo")
        self.page.shows("app/other", "#messages")
        if stored("app/other") != "newer" or "broken" not in stored("app/config"):
            raise Failed("undone over a newer change")
        self.open(f"history/compare?from={since}&again")
        self.page.shows("2 entities differ")
        self.page.click(".toolbar .button", "Undo all of these")
        self.page.click("dialog .button", "Undo")
        wait(lambda: stored("app/other") is None and stored("app/config") == before, "both keys are as they were")

    def reconnect(self):
        self.step("the node dies: the page says so; it comes back: nothing was missed")
        put("app/motd", "Before that")
        self.open("keys/app/motd")
        self.page.shows("Before that", ".detail .value")
        self.page.run("globalThis.sameDocument = true")
        cluster("kill", "1")
        self.page.shows("does not answer", "#banner")
        self.page.shows(f"127.0.0.1:{PORTS[1]}", "#banner")
        self.picture("reconnecting")
        wait(lambda: self.try_put("app/motd", "While it was down"), "another node takes the write")
        put("app/missed", "1", node=2)
        cluster("restart", "1")
        self.page.until("!document.querySelector('#banner').innerText", "the banner goes", 40)
        self.page.shows("While it was down", ".detail .value", 40)
        self.page.shows("missed", "[role=tree]")
        if not self.page.run("globalThis.sameDocument"):
            raise Failed("the page was loaded again")

    def try_put(self, key, value):
        try:
            put(key, value, node=2)
            return True
        except urllib.error.URLError:
            return False

    def keyboard(self):
        self.step("keyboard alone: pages, a list, an action")
        self.open("cluster")
        self.page.shows("Members")
        self.page.key("2")
        self.page.until("document.title.startsWith('Keys')", "2 opens the keys")
        self.page.shows("app/", "[role=tree]")
        self.page.run("document.querySelector('[role=tree]').focus()")
        self.page.until("document.querySelectorAll('[role=treeitem]').length > 2", "keys are listed")
        self.page.key("Home")
        for _ in range(12):
            if "app" in (self.page.run("document.querySelector('.row.active')?.innerText") or ""):
                break
            self.page.key("ArrowDown")
            self.page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        self.page.key("ArrowRight")
        self.page.shows("config", "[role=tree]")
        if not self.page.run("document.querySelector('[role=tree]').getAttribute('aria-activedescendant')"):
            raise Failed("a screen reader does not learn the active row")
        self.page.key("?")
        self.page.shows("Keyboard", "dialog")
        self.judge("keyboard")
        self.page.key("Escape")
        self.page.until("!document.querySelector('dialog')", "Escape closes the dialog")

    def looks(self):
        self.step("in the dark, and on a phone")
        self.page.size(1280, 800, "dark")
        for name in ("cluster", "keys/app/config", "services/cart", "history"):
            self.open(name)
            self.page.shows(
                {"cluster": "serves", "keys/app/config": "requests", "services/cart": "cart-1", "history": "etcd"}[
                    name
                ],
                "#main",
            )
            self.judge(f"dark-{name.split('/')[0]}")
        self.page.size(390, 800, "light", phone=True)
        for name in (
            "cluster",
            "keys",
            "keys/app/config",
            "services/cart",
            "resources/demo/v2/Album",
            "leases",
            "history",
        ):
            self.open(name)
            self.page.until("document.querySelector('#main').innerText.length > 20", f"{name} is shown")
            wide = self.page.run("document.documentElement.scrollWidth")
            if wide > 390:
                raise Failed(f"{name} is {wide} pixels wide on a phone")
            self.judge(f"phone-{name.replace('/', '-')}")
        self.page.size(1280, 800)

    def read_only(self):
        self.step("ui = read: nothing can be changed")
        os.environ["HEADWATER_UI"] = "read"
        cluster("restart", "3")
        del os.environ["HEADWATER_UI"]
        self.open("keys/app/config", node=3)
        self.page.shows("requests", ".detail")
        if self.page.run(
            "[...document.querySelectorAll('#main button')].some(one => ['Edit', 'Delete', 'New key'].includes(one.innerText.trim()))"
        ):
            raise Failed("the page offers changes")
        self.step("ui = off: there is no page")
        os.environ["HEADWATER_UI"] = "off"
        cluster("restart", "3")
        del os.environ["HEADWATER_UI"]
        for path in ("/ui", "/ui/", "/ui/app.js", "/ui/settings.json"):
            try:
                ask(path, node=3)
                raise Failed(f"{path} is served")
            except urllib.error.HTTPError as error:
                if error.code != 404:
                    raise Failed(f"{path} answers {error.code}") from error

    def login(self):
        self.step("users: the page asks for credentials, and has their rights")
        for path, body in (
            ("user/add", {"name": "root", "password": "secret"}),
            ("user/add", {"name": "alice", "password": "a"}),
            ("role/add", {"name": "app"}),
            (
                "role/grant",
                {
                    "name": "app",
                    "perm": {"permType": "READWRITE", "key": encoded("app/"), "range_end": encoded("app0")},
                },
            ),
            ("user/grant", {"user": "alice", "role": "app"}),
            ("role/add", {"name": "root"}),
            ("user/grant", {"user": "root", "role": "root"}),
            ("enable", {}),
        ):
            ask(f"/v3/auth/{path}", body)
        self.open("keys")
        self.page.until("document.title.startsWith('Keys')", "the keys are opened")
        self.page.reload()
        self.page.shows("Sign in", "dialog")
        self.judge("sign-in")
        self.page.fill("dialog input[name=name]", "root")
        self.page.fill("dialog input[name=password]", "wrong")
        self.page.click("dialog .button", "Sign in")
        self.page.shows("authentication failed", "dialog")
        self.page.fill("dialog input[name=password]", "secret")
        self.page.click("dialog .button", "Sign in")
        self.page.shows("app/", "[role=tree]")
        self.page.click("#account")
        self.page.click("dialog .button", "Use others")
        self.page.fill("dialog input[name=name]", "alice")
        self.page.fill("dialog input[name=password]", "a")
        self.page.click("dialog .button", "Sign in")
        self.go("keys/app/config")
        self.page.shows("requests", ".detail")
        self.go("keys")
        self.page.until("location.hash === '#/keys'", "the keys are opened")
        self.page.reload()
        self.page.shows("Not all keys may be read", ".pane")
        self.page.fill("input[type=search]", "app/")
        self.page.shows("config", "[role=tree]")
        put("app/by-root", "1", headers={"Authorization": self.token()})
        self.page.shows("by-root", "[role=tree]")
        ask("/v3/auth/disable", {}, headers={"Authorization": self.token()})

    def token(self):
        return ask("/v3/auth/authenticate", {"name": "root", "password": "secret"})["token"]

    def run(self):
        self.page.size(1280, 800)
        self.fill()
        parts = (
            self.shell,
            self.modules,
            self.cluster,
            self.keys,
            self.services,
            self.resources,
            self.leases,
            self.history,
            self.undo,
            self.reconnect,
            self.keyboard,
            self.looks,
            self.read_only,
            self.login,
        )
        wanted = os.environ.get("HEADWATER_CONSOLE_PARTS", "").split()
        for part in parts:
            if not wanted or part.__name__ in wanted:
                part()
        if self.page.problems:
            raise Failed("errors in the page:\n" + "\n".join(self.page.problems))
        if self.findings:
            raise Failed(
                "findings on the pages:\n" + "\n".join(f"{name}: {finding}" for name, finding in self.findings)
            )


def main():
    browser = Browser(program())
    tour = Tour(browser)
    try:
        tour.run()
    except Failed as error:
        browser.picture(os.path.join(PICTURES, "failed.png"))
        print(
            f"failed: {error}\nmessages: {browser.run(MESSAGES)}\nthe last picture is {PICTURES}/failed.png",
            file=sys.stderr,
        )
        for problem in browser.problems:
            print(f"error in the page: {problem}", file=sys.stderr)
        sys.exit(1)
    finally:
        for lock in tour.locks:
            lock.terminate()
        browser.close()


main()
