"""The numbered cases in which nodes die, stand still, or are alone, and those about markers of another time.

Drives the cluster by its script. Every case looks over all transports at once.
"""

import base64
import json
import subprocess
import threading
import time

import grpc

from cases import TREE, WHOLE, Run
from etcd import rpc_pb2, rpc_pb2_grpc
from held import Failed, Held
from streams import TIMEOUT_S, TRANSPORTS, Ended
from view import View

# Writes while a node stands still.
MISSED_WRITES = 2000
PIPELINE = 32
# Writes behind a dead leader that must be acknowledged.
WRITES_AFTER = 50
# A refusal that took longer than this waited for something.
AT_ONCE_S = 2


class Cluster:
    """Nodes are numbered from 1."""

    def __init__(self, script, endpoints):
        self.script = script
        self.endpoints = dict(enumerate(endpoints, 1))

    def do(self, *arguments):
        subprocess.run([self.script, *map(str, arguments)], check=True, stdout=subprocess.DEVNULL)

    def leader(self):
        """The node that all which answer take for the leader."""
        give_up = time.monotonic() + TIMEOUT_S
        while time.monotonic() < give_up:
            said = set()
            for endpoint in self.endpoints.values():
                with grpc.insecure_channel(endpoint) as channel:
                    try:
                        status = rpc_pb2_grpc.MaintenanceStub(channel).Status(rpc_pb2.StatusRequest(), timeout=2)
                        said.add(status.leader)
                    except grpc.RpcError:
                        pass
            if len(said) == 1 and 0 not in said:
                return said.pop()
            time.sleep(0.1)
        raise Failed("no leader was found")

    def others(self, node):
        return [other for other in self.endpoints if other != node]


class Runs:
    """One run for each transport, with keys of their own; written through `writer`."""

    def __init__(self, note, cluster, case, writer):
        self.note = note
        self.held = {name: Held(note, name, case) for name in TRANSPORTS}
        endpoint = cluster.endpoints[writer]
        folder = f"{case}-{time.time_ns()}"
        self.runs = {
            name: Run(self.held[name], transport, endpoint, endpoint, f"{folder}-{name}")
            for name, transport in TRANSPORTS.items()
        }

    def __iter__(self):
        return iter(self.runs.values())

    def done(self):
        for run in self:
            run.settle()
            run.leave()
            run.held.note()


def w17_a_node_that_lags(note, cluster):
    """It is asked while it stands still; what it answers afterwards is not older than what others showed before."""
    leader = cluster.leader()
    lagging, awake = cluster.others(leader)
    runs = Runs(note, cluster, "lagging", awake)
    asked = []
    for run in runs:
        run.store.fixture()
        run.before = run.watch(TREE)
        run.before.expect("the fixture", WHOLE)
        run.before.cancel()
    cluster.do("pause", lagging)
    try:
        for run in runs:
            under_way = []
            for number in range(MISSED_WRITES):
                under_way.append(run.store.put_later("/app/a", str(number)))
                if len(under_way) >= PIPELINE:
                    under_way.pop(0).result()
            for write in under_way:
                write.result()
            run.store.put("/app/last", "!")
            newest = run.watch(TREE)
            newest.group()
            run.settle()
            newest.cancel()
            run.newest = newest.view
        # Not earlier: nobody waits for ever for a node that does not even accept.
        for run in runs:
            at = cluster.endpoints[lagging]
            marker, view = run.newest.marker, View()
            view.elements, view.is_whole = dict(run.newest.elements), True
            asked.append((run, "nothing was missed", run.watch(TREE, marker, at=at, view=view)))
            view = run.before.view
            asked.append((run, "much was missed", run.watch(TREE, view.marker, at=at, view=view)))
            asked.append((run, "the state", run.watch(TREE, at=at)))
    finally:
        cluster.do("resume", lagging)
    for run, what, stream in asked:
        stream.group()
        same = stream.view.elements == run.tree(TREE)
        run.check(same, f"W17: {what}, and the first group of a node that lagged is as new as the marker")
    runs.done()


def w50_the_leader_dies(note, cluster):
    """Keys are written once each, so that what was told can be compared with what there is, in order."""
    leader = cluster.leader()
    writer, other = cluster.others(leader)
    runs = Runs(note, cluster, "leader dies", writer)
    runs_of = []
    for run in runs:
        run.store.fixture()
        at_leader = run.watch(TREE, at=cluster.endpoints[leader])
        survivor = run.watch(TREE, at=cluster.endpoints[other])
        runs_of.append((run, at_leader, survivor))
        for stream in (at_leader, survivor):
            stream.expect("the fixture", WHOLE)
    killed, acknowledged = threading.Event(), []
    run_over = threading.Event()

    def write():
        """Goes on for some time behind the death; what was not answered may be there or not."""
        number, after = 0, 0
        while not run_over.is_set() and after < WRITES_AFTER:
            for run in runs:
                try:
                    run.store.put(f"/app/n{number:06}", str(number))
                    acknowledged.append((run, f"n{number:06}"))
                    after += killed.is_set()
                except grpc.RpcError:
                    time.sleep(0.05)
            number += 1

    writing = threading.Thread(target=write)
    writing.start()
    try:
        for run, at_leader, survivor in runs_of:
            for _ in range(10):
                at_leader.group()
                survivor.group()
        cluster.do("kill", leader)
        killed.set()
        writing.join(timeout=TIMEOUT_S)
    finally:
        run_over.set()
        writing.join()
    for run, at_leader, survivor in runs_of:
        ended = at_leader.ended()
        run.check(ended.code in ("UNAVAILABLE", "CUT"), f"W50: at the leader the stream ended: {ended}")
        resumed = run.watch(TREE, at_leader.view.marker, at=cluster.endpoints[writer], view=at_leader.view)
        resumed.group()
        tree = run.tree(TREE)
        written = [name for of, name in acknowledged if of is run]
        run.check(set(written) <= set(tree), f"W50: all {len(written)} acknowledged writes are there")
        resumed.settle("W50, resumed at another node", tree)
        survivor.settle("W50, without an interruption", tree)
        order = [name for name, _ in run.store.pairs("/app") if name.startswith("n")]
        for stream in (resumed, survivor):
            told = [name for name in stream.view.elements if name.startswith("n")]
            run.check(told == order, f"W50: {len(told)} keys in the order in which they were written")
    cluster.do("restart", leader)
    for run, at_leader, _ in runs_of:
        back = run.watch(TREE, at_leader.view.marker, at=cluster.endpoints[leader])
        run.check(back.group()[-1].marker, "W50: the marker is good at the node that was restarted")
    runs.done()


def w51_a_node_alone(note, cluster, alone, what):
    """Every other node stands still."""
    others = cluster.others(alone)
    runs = Runs(note, cluster, what, alone)
    for run in runs:
        run.store.fixture()
        run.follows = run.watch(TREE)
        run.follows.expect("the fixture", WHOLE)
    for other in others:
        cluster.do("pause", other)
    try:
        begin = time.monotonic()
        asked = []
        for run in runs:
            run.follows.silent(f"W51, {what}")
            asked.append((run, "W51, the state", run.watch(TREE)))
            asked.append((run, "W51, now", run.watch(TREE, b"now")))
            # It does not say that the marker is wrong, nor show something older.
            asked.append((run, "W17, W51, a marker", run.watch(TREE, run.follows.view.marker)))
        for run, name, stream in asked:
            try:
                raise Failed(f"{name}: a node alone told {stream.next()}")
            except Ended as ended:
                run.check(ended.code == "UNAVAILABLE", f"{name}, {what}: {ended}")
                if run.transport.name != "gRPC":
                    # 503 over lines; an event, after which a browser comes again.
                    run.check(True, f"W55, {what}: {ended.code}")
        for run in runs:
            ended = run.follows.ended()
            took = time.monotonic() - begin
            run.check(ended.code == "UNAVAILABLE", f"W51, {what}: after {took:.1f} s the stream ended: {ended}")
    finally:
        for other in others:
            cluster.do("resume", other)
    for run in runs:
        view = run.follows.view
        give_up = time.monotonic() + TIMEOUT_S
        while True:
            try:
                back = run.watch(TREE, view.marker, view=view)
                back.expect("W51, with the others", ["C(,E,d0,m)"])
                break
            except Ended as ended:
                run.held.insist(ended.code == "UNAVAILABLE" and time.monotonic() < give_up, f"W51: {ended}")
    runs.done()


def mark(endpoint, state):
    """Leaves markers in a file."""
    left = {}
    for name, transport in TRANSPORTS.items():
        run = Run(Held("/dev/null", name, ""), transport, endpoint, endpoint, f"marked-{name}")
        run.store.fixture()
        # Far enough that what a cluster writes by itself does not come there.
        for write in [run.store.put_later("/other/z", str(number)) for number in range(MISSED_WRITES)]:
            write.result()
        stream = run.watch(TREE)
        stream.group()
        left[name] = base64.b64encode(stream.view.marker).decode()
        run.leave()
    with open(state, "w", encoding="utf-8") as file:
        json.dump(left, file)


def refused(note, endpoint, state, case):
    """Those markers are refused, and it is said what to do."""
    with open(state, encoding="utf-8") as file:
        left = json.load(file)
    for name, transport in TRANSPORTS.items():
        held = Held(note, name, "set back" if case == "W16" else "restored")
        run = Run(held, transport, endpoint, endpoint, f"marked-{name}")
        # The machine may have something else to do just then.
        took = []
        while not took or (min(took) >= AT_ONCE_S and len(took) < 5):
            begin = time.monotonic()
            run.refused("FAILED_PRECONDITION", case, run.store.target(TREE), base64.b64decode(left[name]))
            took.append(time.monotonic() - begin)
        run.check(min(took) < AT_ONCE_S, f"{case}: it did not wait, but said so after {min(took):.3f} s")
        stream = run.watch(TREE)
        stream.group()
        stream.settle(f"{case}, then without one", run.tree(TREE))
        run.leave()
        held.note()
