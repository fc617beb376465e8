"""A client of Subscribe, made from the public proto by another implementation of gRPC: scripts/test-subscribe runs it.

    client.py fresh ENDPOINT STATE      subscribes, sees the state and changes; leaves index, lineage and state in STATE
    client.py change ENDPOINT STATE     makes changes while nobody looks; they are noted in STATE
    client.py resume ENDPOINT STATE     goes on from STATE: sees what it missed and nothing else, then a change
    client.py over ENDPOINT STATE       goes on from STATE at a store that was restored: must be told to start over

Ends with an error at the first thing that is not as it should be.
"""

import json
import queue
import sys
import threading
import time
import urllib.request

import grpc

from consul import subscribe_pb2 as pb
from consul import subscribe_pb2_grpc

# Longer than anything here may take on a busy machine; only a defect runs into it.
TIMEOUT_S = 60
SERVICE = "web"


class Failed(Exception):
    """Something is not as it should be."""


def check(condition, what):
    if not condition:
        raise Failed(what)
    print(f"    {what}")


def put(endpoint, path, body):
    request = urllib.request.Request(f"http://{endpoint}{path}", json.dumps(body).encode(), method="PUT")
    with urllib.request.urlopen(request, timeout=TIMEOUT_S) as answer:
        return answer.read()


def register(endpoint, node, number, status="passing"):
    service = {"ID": f"web-{number}", "Service": SERVICE, "Port": 8000 + number, "Tags": ["v1"]}
    health = {"CheckID": f"web-{number}-check", "Name": "alive", "ServiceID": f"web-{number}", "Status": status}
    put(endpoint, "/v1/catalog/register", {"Node": node, "Address": "10.0.0.1", "Service": service, "Check": health})


def deregister(endpoint, node, number):
    put(endpoint, "/v1/catalog/deregister", {"Node": node, "ServiceID": f"web-{number}"})


class Stream:
    """Follows the service; `view` is what there is, `log` what was told."""

    def __init__(self, endpoint, index=0, epoch=None, view=None):
        self.view = dict(view or {})
        self.log = []
        self.index = index
        request = pb.SubscribeRequest(
            Topic=pb.ServiceHealth, Index=index, NamedSubject=pb.NamedSubject(Key=SERVICE.upper())
        )
        metadata = [("headwater-epoch", epoch)] if epoch else []
        self.channel = grpc.insecure_channel(endpoint)
        self.call = subscribe_pb2_grpc.StateChangeSubscriptionStub(self.channel).Subscribe(request, metadata=metadata)
        self.epoch = dict(self.call.initial_metadata())["headwater-epoch"]
        self.events = queue.Queue()
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self):
        try:
            for event in self.call:
                self.events.put(event)
        except grpc.RpcError as error:
            self.events.put(error)

    def next(self):
        event = self.events.get(timeout=TIMEOUT_S)
        if isinstance(event, Exception):
            raise event
        self._apply(event)
        return event

    def _apply(self, event):
        kind = event.WhichOneof("Payload")
        if kind == "NewSnapshotToFollow":
            self.view = {}
            self.log.append("new snapshot")
        elif kind == "EndOfSnapshot":
            self.log.append("end of snapshot")
        elif kind == "EventBatch":
            for inner in event.EventBatch.Events:
                self._apply(inner)
        else:
            instance = event.ServiceHealth.CheckServiceNode
            key = f"{instance.Node.Node}/{instance.Service.ID}"
            if event.ServiceHealth.Op == pb.Register:
                self.view[key] = instance.Checks[0].Status if instance.Checks else ""
                self.log.append(f"register {key} {self.view[key]}")
            else:
                self.view.pop(key, None)
                self.log.append(f"deregister {key}")
        if event.Index:
            self.index = event.Index

    def until(self, wanted):
        """Reads until the view is this."""
        give_up = time.monotonic() + TIMEOUT_S
        while self.view != wanted:
            if time.monotonic() > give_up:
                raise Failed(f"waited in vain for {wanted}, there is {self.view}")
            self.next()

    def save(self, path):
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"index": self.index, "epoch": self.epoch, "view": self.view, "missed": []}, file)
        self.call.cancel()
        self.channel.close()


def load(path):
    with open(path, encoding="utf-8") as file:
        return json.load(file)


def fresh(endpoint, path):
    register(endpoint, "n1", 1)
    register(endpoint, "n2", 2)
    stream = Stream(endpoint)
    while "end of snapshot" not in stream.log:
        stream.next()
    check("new snapshot" not in stream.log, "a fresh stream is not told to start over")
    check(stream.view == {"n1/web-1": "passing", "n2/web-2": "passing"}, f"the state: {stream.view}")
    register(endpoint, "n2", 2, "critical")
    event = stream.next()
    instance = event.ServiceHealth.CheckServiceNode
    check(stream.view["n2/web-2"] == "critical", f"a change of health, at index {event.Index}")
    check(instance.Service.Weights.Passing == 1 and instance.HasField("Node"), "the instance comes whole")
    register(endpoint, "n3", 3)
    deregister(endpoint, "n1", 1)
    stream.until({"n2/web-2": "critical", "n3/web-3": "passing"})
    check(stream.log[-1] == "deregister n1/web-1", "what came and what went, in order")
    stream.save(path)


def change(endpoint, path):
    state = load(path)
    health = "warning" if state["view"]["n2/web-2"] != "warning" else "critical"
    newest = max(int(key.rsplit("-", 1)[1]) for key in state["view"])
    register(endpoint, "n2", 2, health)
    deregister(endpoint, f"n{newest}", newest)
    register(endpoint, f"n{newest + 1}", newest + 1)
    state["missed"] = [
        f"register n2/web-2 {health}",
        f"deregister n{newest}/web-{newest}",
        f"register n{newest + 1}/web-{newest + 1} passing",
    ]
    with open(path, "w", encoding="utf-8") as file:
        json.dump(state, file)


def resume(endpoint, path):
    state = load(path)
    stream = Stream(endpoint, state["index"], state["epoch"], state["view"])
    for _ in state["missed"]:
        stream.next()
    check(stream.log == state["missed"], f"what it missed, and nothing else: {stream.log}")
    register(endpoint, "n9", 9)
    stream.next()
    check(stream.log[-1] == "register n9/web-9 passing", "then what happens now")
    deregister(endpoint, "n9", 9)
    stream.next()
    stream.save(path)


def over(endpoint, path):
    state = load(path)
    stream = Stream(endpoint, state["index"], state["epoch"], state["view"])
    first = stream.next()
    check(first.NewSnapshotToFollow and first.Index == 0, "it is told to start over, first of all")
    while stream.log[-1] != "end of snapshot":
        stream.next()
    check(stream.epoch != state["epoch"], f"the lineage is another one: {stream.epoch}")
    check(stream.view, f"and the state of the backup comes: {stream.view}")
    stream.save(path)


def main():
    phase, endpoint, path = sys.argv[1:]
    phases = {"fresh": fresh, "change": change, "resume": resume, "over": over}
    try:
        phases[phase](endpoint, path)
    except Failed as failed:
        print(f"FAILED: {failed}", file=sys.stderr)
        sys.exit(1)
    except queue.Empty:
        print("FAILED: waited in vain for an event", file=sys.stderr)
        sys.exit(1)


main()
