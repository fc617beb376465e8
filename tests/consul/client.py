"""The service catalog as python-consul uses it, unchanged: scripts/test-consul runs it.

usage: client.py HOST:PORT...

The first member is written to, the last one is read from. Ends with an error at the first thing that is not as Consul's
documents say.
"""

import sys
import threading
import time

import consul

# Longer than anything here may take on a busy machine; only a defect runs into it.
TIMEOUT_S = 60


class Failed(Exception):
    """Something is not as it should be."""


def check(condition, what, *seen):
    if not condition:
        raise Failed(f"{what}: {seen}")
    print(f"    {what}")


def eventually(what, condition):
    give_up = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > give_up:
            raise Failed(f"waited in vain: {what}")
        time.sleep(0.05)
    print(f"    {what}")


def refused(error, what, call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except error as told:
        print(f"    {what}: {told}")
        return
    raise Failed(f"{what}: was not refused")


def statuses(found):
    return {instance["Service"]["ID"]: {check["CheckID"]: check["Status"] for check in instance["Checks"]} for instance in found}


def cluster(members):
    """Who is there."""
    for member in members:
        check(":" in member.status.leader(), "a leader is known", member.status.leader())
        check(len(member.status.peers()) == len(members), "every voter is a peer", member.status.peers())
    own = members[0].agent.self()
    check(own["Config"]["Datacenter"] == "dc1" and own["Config"]["NodeName"], "the agent knows its name", own["Config"])
    names = sorted(member["Name"] for member in members[0].agent.members())
    check(len(names) == len(members) and own["Config"]["NodeName"] in names, "members are listed", names)
    check(members[0].catalog.datacenters() == ["dc1"], "there is one datacenter")


def catalog(members):
    """Register with one member, read from another."""
    first, last = members[0], members[-1]
    first.catalog.deregister("py-node")
    service = {"Service": "py-db", "ID": "py-db-1", "Tags": ["primary", "v1"], "Port": 5432}
    told = {"Node": "py-node", "CheckID": "service:py-db-1", "Name": "db", "Status": "passing", "ServiceID": "py-db-1"}
    check(first.catalog.register("py-node", "10.9.9.9", service=service, check=told), "a node is registered")
    index, found = last.catalog.service("py-db")
    check(int(index) > 0 and len(found) == 1, "its service is found by another member", index, found)
    check(found[0]["Address"] == "10.9.9.9" and found[0]["ServicePort"] == 5432, "with its address and port", found)
    check(found[0]["ServiceTags"] == ["primary", "v1"], "with its tags", found)
    _, nodes = last.catalog.nodes()
    check("py-node" in [node["Node"] for node in nodes], "the node is listed", nodes)
    _, services = last.catalog.services()
    check(sorted(services["py-db"]) == ["primary", "v1"], "the service is listed", services)
    _, node = last.catalog.node("py-node")
    check(list(node["Services"]) == ["py-db-1"], "the node shows what is on it", node)
    check(last.catalog.node("py-nothing")[1] is None, "a node that is not there is null")
    check(len(last.catalog.service("py-db", tag="v1")[1]) == 1, "tags narrow")
    check(last.catalog.service("py-db", tag="v2")[1] == [], "other tags find nothing")
    check(last.catalog.service("py-nothing")[1] == [], "a service that is not there is an empty list")
    _, found = last.health.service("py-db", passing=True)
    check(statuses(found) == {"py-db-1": {"service:py-db-1": "passing"}}, "it is healthy", found)
    check([it["CheckID"] for it in last.health.checks("py-db")[1]] == ["service:py-db-1"], "its checks are listed")
    check([it["CheckID"] for it in last.health.node("py-node")[1]] == ["service:py-db-1"], "by its node, too")
    passing = [it["CheckID"] for it in last.health.state("passing")[1] if it["Node"] == "py-node"]
    check(passing == ["service:py-db-1"], "and by their status", passing)
    refused(consul.base.BadRequest, "a node without an address", first.catalog.register, "py-node-2", "")
    for mode in ("default", "consistent", "stale"):
        check(last.catalog.nodes(consistency=mode)[1], f"reads may be {mode}")


def blocking(members):
    """Blocking queries wake for their service, and for nothing else."""
    first, last = members[0], members[-1]
    put = lambda name, status: first.catalog.register(
        "py-node", "10.9.9.9",
        service={"Service": name},
        check={"Node": "py-node", "CheckID": f"service:{name}", "Name": name, "Status": status, "ServiceID": name},
    )
    put("py-web", "passing")
    put("py-other", "passing")
    index, _ = last.health.service("py-web")
    seen = []

    def watch():
        at, count = index, 0
        while count < 2:
            new, found = last.health.service("py-web", index=at, wait="30s")
            seen.append((int(new), statuses(found)["py-web"]["service:py-web"]))
            count += new != at
            at = new

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    for status in ("warning", "passing", "critical", "passing"):
        put("py-other", status)
    check(not seen, "what happens to another service wakes nobody", seen)
    put("py-web", "critical")
    eventually("a change wakes", lambda: [status for _, status in seen] == ["critical"])
    put("py-web", "passing")
    watcher.join(TIMEOUT_S)
    check([status for _, status in seen] == ["critical", "passing"], "each change once, in order", seen)
    check(int(index) < seen[0][0] < seen[1][0], "indexes rise", index, seen)
    began = time.monotonic()
    at, _ = last.health.service("py-web", index=seen[-1][0], wait="300ms")
    check(int(at) == seen[-1][0] and time.monotonic() - began >= 0.3, "nothing new: the same index, in time", at)


def agent(members):
    """Services and TTL checks of an agent."""
    first, last = members[0], members[-1]
    node = first.agent.self()["Config"]["NodeName"]
    ttl = consul.Check.ttl("1h")
    check(first.agent.service.register("py-app", service_id="py-app-1", port=8000, tags=["t"], check=ttl), "registered")
    check("py-app-1" in first.agent.services(), "the agent lists it", first.agent.services())
    _, found = last.health.service("py-app")
    check(statuses(found) == {"py-app-1": {"service:py-app-1": "critical"}}, "critical until it reports", found)
    check(found[0]["Node"]["Node"] == node, "on the agent's node", found)
    for call, status in (("ttl_pass", "passing"), ("ttl_warn", "warning"), ("ttl_fail", "critical"), ("ttl_pass", "passing")):
        check(getattr(first.agent.check, call)("service:py-app-1", notes=f"by {call}"), call)
        _, found = last.health.service("py-app")
        told = [it for it in found[0]["Checks"] if it["CheckID"] == "service:py-app-1"][0]
        check((told["Status"], told["Output"]) == (status, f"by {call}"), f"{call} is seen by another member", told)
    check(first.agent.service.maintenance("py-app-1", "true", reason="works"), "maintenance begins")
    check(last.health.service("py-app", passing=True)[1] == [], "and hides the service")
    check(first.agent.service.maintenance("py-app-1", "false"), "maintenance ends")
    check(len(last.health.service("py-app", passing=True)[1]) == 1, "and shows it again")
    check(first.agent.check.register("py-node-check", check=ttl, check_id="py-node-check"), "a check of the node")
    check(last.health.service("py-app", passing=True)[1] == [], "counts for all that is on it")
    check(first.agent.check.deregister("py-node-check"), "and goes")
    check("service:py-app-1" in first.agent.checks(), "the agent lists its checks")
    refused(consul.base.BadRequest, "a check that nobody runs", first.agent.service.register,
            "py-bad", check=consul.Check.http("http://127.0.0.1:1", "10s"))
    check(first.agent.service.deregister("py-app-1"), "deregistered")
    check(last.health.service("py-app")[1] == [], "and gone everywhere")


def ttl_runs_out(members):
    """A TTL check that is not refreshed turns critical by itself; one that is refreshed does not."""
    first, last = members[0], members[-1]
    first.agent.service.register("py-quick", check=consul.Check.ttl("8s"))
    first.agent.check.ttl_pass("service:py-quick")
    until = time.monotonic() + 12
    while time.monotonic() < until:
        first.agent.check.ttl_pass("service:py-quick")
        _, found = last.health.service("py-quick")
        if statuses(found)["py-quick"]["service:py-quick"] != "passing":
            raise Failed(f"refreshed, and yet: {found}")
        time.sleep(0.3)
    print("    refreshed, it stays")
    eventually("it turns critical once nobody refreshes it",
               lambda: statuses(last.health.service("py-quick")[1])["py-quick"]["service:py-quick"] == "critical")
    first.agent.service.deregister("py-quick")


def tidy_up(members):
    """Everything goes with its node."""
    members[0].catalog.deregister("py-node")
    check(members[-1].catalog.service("py-db")[1] == [], "what was on the node has gone with it")


def main():
    addresses = [address.rsplit(":", 1) for address in sys.argv[1:]]
    if not addresses:
        sys.exit(__doc__)
    members = [consul.Consul(host=host, port=int(port)) for host, port in addresses]
    for part in (cluster, catalog, blocking, agent, ttl_runs_out, tidy_up):
        print(f"{part.__name__}: {part.__doc__}")
        part(members)


if __name__ == "__main__":
    main()
