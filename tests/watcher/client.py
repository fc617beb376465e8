"""A client of google.watcher.v1, made from the original package by another implementation of gRPC: scripts/test-watcher runs it.

    client.py ENDPOINT OTHER PREFIX    follows at ENDPOINT, and goes on at OTHER

Runs through the numbered cases that a client can see by itself. Ends with an error at the first thing that is not as it should be.
PREFIX begins all keys, so that runs do not meet. Keys are written through the key-value service.
"""

import queue
import sys
import threading
import time

import grpc
from google.protobuf import empty_pb2

from etcd import kv_pb2, rpc_pb2, rpc_pb2_grpc
from google.watcher.v1 import watch_pb2 as pb
from google.watcher.v1 import watch_pb2_grpc

# Longer than anything here may take on a busy machine; only a defect runs into it.
PATIENCE_S = 60
# How long a stream is listened to before it counts as silent.
SILENCE_S = 0.3
STATES = {pb.Change.EXISTS: "E", pb.Change.DOES_NOT_EXIST: "X", pb.Change.INITIAL_STATE_SKIPPED: "S", pb.Change.ERROR: "R"}


class Failed(Exception):
    """Something is not as it should be."""


def check(condition, what):
    if not condition:
        raise Failed(what)
    print(f"    {what}")


def show(change):
    """A change in the notation of the cases."""
    if change.continued == bool(change.resume_marker):
        raise Failed(f"a marker stands at the end of a group and nowhere else: {change}")
    data = ""
    if change.HasField("data"):
        if change.data.Is(kv_pb2.KeyValue.DESCRIPTOR):
            kv = kv_pb2.KeyValue()
            change.data.Unpack(kv)
            data = "," + kv.value.decode()
        elif change.data.Is(empty_pb2.Empty.DESCRIPTOR):
            data = ",Empty"
        else:
            data = "," + change.data.type_url.rsplit(".", 1)[-1]
    return f"C({change.element},{STATES[change.state]}{data}{',+' if change.continued else ',m'})"


class Watch:
    """A stream, flattened."""

    def __init__(self, stub, target, marker=b"", **kwargs):
        self.changes = queue.Queue()
        self.batches = 0
        self.call = stub.Watch(pb.Request(target=target, resume_marker=marker), **kwargs)
        threading.Thread(target=self._collect, daemon=True).start()

    def _collect(self):
        try:
            for batch in self.call:
                self.batches += 1
                for change in batch.changes:
                    self.changes.put(change)
            self.changes.put(None)
        except grpc.RpcError as error:
            self.changes.put(error)

    def next(self):
        change = self.changes.get(timeout=PATIENCE_S)
        if not isinstance(change, pb.Change):
            raise Failed(f"the stream ended: {change}")
        return change

    def group(self):
        group = [self.next()]
        while group[-1].continued:
            group.append(self.next())
        return group

    def expect(self, what, wanted):
        group = self.group()
        shown = [show(change) for change in group]
        check(shown == wanted, f"{what}: {' '.join(shown)}")
        return group[-1].resume_marker

    def silent(self, what):
        try:
            change = self.changes.get(timeout=SILENCE_S)
        except queue.Empty:
            return
        raise Failed(f"{what}: the stream was not silent: {change}")

    def cancel(self):
        self.call.cancel()


def refused(stub, code, what, target, marker=b""):
    try:
        next(iter(stub.Watch(pb.Request(target=target, resume_marker=marker), timeout=PATIENCE_S)))
    except grpc.RpcError as error:
        check(error.code() == code and error.details(), f"{what}: {error.code().name} ({error.details()})")
        return
    raise Failed(f"{what}: was not refused")


class Store:
    """Keys below a folder of a case."""

    def __init__(self, stub, folder):
        self.stub = stub
        self.folder = folder

    def key(self, key):
        return (self.folder + key).encode()

    def target(self, path):
        return f"/kv/{self.folder}{path}"

    def put(self, key, value):
        self.stub.Put(rpc_pb2.PutRequest(key=self.key(key), value=value.encode()), timeout=PATIENCE_S)

    def delete(self, key, subtree=False):
        end = self.key(key + "0") if subtree else b""
        self.stub.DeleteRange(rpc_pb2.DeleteRangeRequest(key=self.key(key), range_end=end), timeout=PATIENCE_S)

    def txn(self, puts, deletes=()):
        operations = [
            rpc_pb2.RequestOp(request_put=rpc_pb2.PutRequest(key=self.key(key), value=value.encode()))
            for key, value in puts
        ] + [rpc_pb2.RequestOp(request_delete_range=rpc_pb2.DeleteRangeRequest(key=self.key(key))) for key in deletes]
        self.stub.Txn(rpc_pb2.TxnRequest(success=operations), timeout=PATIENCE_S)

    def fixture(self):
        for key, value in [("/app", "d0"), ("/app/a", "1"), ("/app/b", "2"), ("/app/d/x", "3"), ("/other/z", "9")]:
            self.put(key, value)


TREE = "/app?recursive=true"
WHOLE = ["C(,E,d0,+)", "C(a,E,1,+)", "C(b,E,2,+)", "C(d,E,Empty,+)", "C(d/x,E,3,m)"]


def the_state(watcher, store):
    store.fixture()
    watch = Watch(watcher, store.target("/app"))
    watch.expect("W1", ["C(,E,d0,+)", "C(a,E,1,+)", "C(b,E,2,+)", "C(d,E,Empty,m)"])
    watch.silent("W1")
    Watch(watcher, store.target(TREE)).expect("W2", WHOLE)
    watch = Watch(watcher, store.target("/nope"))
    watch.expect("W3", ["C(,X,m)"])
    watch.silent("W3")
    store.put("/nope", "v")
    watch.expect("W4", ["C(,E,v,m)"])
    Watch(watcher, store.target("/app/a")).expect("W5", ["C(,E,1,m)"])


def now(watcher, store):
    store.fixture()
    watch = Watch(watcher, store.target("/app"), b"now")
    watch.expect("W6", ["C(,S,m)"])
    Watch(watcher, store.target("/nope"), b"now").expect("W7", ["C(,S,m)"])
    store.put("/app/a", "7")
    watch.expect("W6", ["C(a,E,7,m)"])
    for marker in [b"NOW", b"now ", b"now\0"]:
        refused(watcher, grpc.StatusCode.INVALID_ARGUMENT, f"W8 {marker}", store.target("/app"), marker)


def markers(watcher, other, store):
    store.fixture()
    marker = Watch(watcher, store.target(TREE)).expect("before", WHOLE)
    watch = Watch(other, store.target(TREE), marker)
    watch.expect("W9, at another node", ["C(,E,d0,m)"])
    watch.silent("W9")
    store.put("/app/a", "7")
    store.delete("/app/b")
    Watch(other, store.target(TREE), marker).expect("W10", ["C(a,E,7,+)", "C(b,X,m)"])
    store.put("/app/b", "9")
    group = [show(change) for change in Watch(watcher, store.target(TREE), marker).group()]
    check(group[-1] == "C(b,E,9,m)", f"W12: {' '.join(group)}")
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    refused(watcher, invalid, "W14", store.target("/app"), marker)
    for wrong in [b"garbage", marker[:-1], b"\0" * 29, b"\0" * (1 << 20)]:
        refused(watcher, invalid, f"W15, {len(wrong)} bytes", store.target(TREE), wrong)


def groups(watcher, store):
    store.fixture()
    watch = Watch(watcher, store.target(TREE))
    watch.expect("before", WHOLE)
    store.txn([("/app/a", "7"), ("/app/c", "8")], ["/app/b"])
    group = watch.group()
    check(len(group) == 3 and all(change.continued for change in group[:-1]), "W20: three changes in one group")
    store.txn([("/app/a", "8"), ("/other/z", "10")])
    watch.expect("W23", ["C(a,E,8,m)"])
    store.txn([("/other/z", "11")])
    watch.silent("W24")
    small = Watch(watcher, store.target(TREE + "&batch_bytes=64"))
    group = small.group()
    check(small.batches >= 3, f"W21: {len(group)} changes in {small.batches} messages")
    for number in range(100):
        store.put("/app/many", str(number))
    seen = []
    while not seen or seen[-1] != "C(many,E,99,m)":
        seen.append(show(watch.next()))
    check(all(change.endswith(",m)") for change in seen), f"W22: {len(seen)} groups in {watch.batches} messages")


def trees(watcher, store):
    store.fixture()
    tree, children = Watch(watcher, store.target(TREE)), Watch(watcher, store.target("/app"))
    marker = tree.expect("before", WHOLE)
    children.group()
    store.delete("/app/a")
    tree.expect("W26", ["C(a,X,m)"])
    children.group()
    store.put("/app/new/deep", "1")
    tree.expect("W27", ["C(new,E,Empty,+)", "C(new/deep,E,1,m)"])
    children.expect("W28", ["C(new,E,Empty,m)"])
    store.put("/app/new/deep2", "2")
    tree.group()
    children.silent("W29")
    store.delete("/app/d/", subtree=True)
    store.delete("/app/d", subtree=True)
    tree.expect("W30", ["C(d,X,m)"])
    group = [show(change) for change in Watch(watcher, store.target(TREE), marker).group()]
    check("C(d,X,m)" in group and not any("d/x" in change for change in group), f"W31: {' '.join(group)}")
    store.put("/app/d/y", "5")
    tree.expect("W32", ["C(d,E,Empty,+)", "C(d/y,E,5,m)"])
    store.delete("/app/d/y")
    tree.expect("W33", ["C(d,X,m)"])
    store.delete("/app")
    tree.expect("W35", ["C(,E,Empty,m)"])
    store.delete("/app", subtree=True)
    tree.expect("W34", ["C(,X,m)"])
    store.put("/app/a", "6")
    tree.expect("W34", ["C(,E,Empty,+)", "C(a,E,6,m)"])


def targets(watcher, store):
    store.fixture()
    invalid = grpc.StatusCode.INVALID_ARGUMENT
    refused(watcher, grpc.StatusCode.UNIMPLEMENTED, "W36", "/?recursive=true")
    for value in ["TRUE", "1", "yes", "true&recursive=true"]:
        refused(watcher, invalid, f"W37 {value}", store.target(f"/app?recursive={value}"))
    Watch(watcher, store.target("/app/a?foo=bar")).expect("W38", ["C(,E,1,m)"])
    for target in ["app", "", "//", "myservice.googleapis.com/app", "http://h/app"]:
        refused(watcher, invalid, f"W39 {target}", target)
    for path, key in [("/a%20b", "/a b"), ("/a+b", "/a+b"), ("/%E2%82%AC", "/\u20ac"), ("/a%2520b", "/a%20b")]:
        store.put(key, "v")
        Watch(watcher, store.target(path)).expect(f"W40, W42 {path}", ["C(,E,v,m)"])
    for path in ["/a%2Fb", "/%zz", "/%", "/%FF", "/a/../b", "/a/./b"]:
        refused(watcher, invalid, f"W41 {path}", store.target(path))
    refused(watcher, invalid, "W43", store.target("/app#x"))


def time_is_kept(watcher, other, store):
    for number in range(20):
        store.put("/here", str(number))
        Watch(other, store.target("/here")).expect("W48, at another node", [f"C(,E,{number},m)"])
    watch = Watch(watcher, store.target("/here"), timeout=0.5)
    watch.group()
    ended = watch.changes.get(timeout=PATIENCE_S)
    check(isinstance(ended, grpc.RpcError) and ended.code() == grpc.StatusCode.DEADLINE_EXCEEDED, "W53: DEADLINE_EXCEEDED")
    watch = Watch(watcher, store.target("/here"))
    watch.group()
    watch.cancel()
    ended = watch.changes.get(timeout=PATIENCE_S)
    check(isinstance(ended, grpc.RpcError) and ended.code() == grpc.StatusCode.CANCELLED, "W53: CANCELLED")


def golden():
    def batch(**fields):
        return pb.ChangeBatch(changes=[pb.Change(**fields)]).SerializeToString()

    check(batch(element="a", continued=True) == bytes.fromhex("0a050a01612801"), "W56: C(a,E,+)")
    check(batch(state=pb.Change.INITIAL_STATE_SKIPPED) == bytes.fromhex("0a021002"), "W56: C(,S)")
    check(batch(state=pb.Change.DOES_NOT_EXIST) == bytes.fromhex("0a021001"), "W56: C(,X)")
    check(batch() == bytes.fromhex("0a00"), "W56: C(,E)")
    request = pb.Request(target="/app", resume_marker=b"now").SerializeToString()
    check(request == bytes.fromhex("0a042f61707012036e6f77"), "W56: a request")


def main(endpoint, other, prefix):
    started = time.monotonic()
    here, there = grpc.insecure_channel(endpoint), grpc.insecure_channel(other)
    watcher, elsewhere = watch_pb2_grpc.WatcherStub(here), watch_pb2_grpc.WatcherStub(there)
    keys = rpc_pb2_grpc.KVStub(here)

    def store(case):
        return Store(keys, f"{prefix}-{case}")

    the_state(watcher, store("state"))
    now(watcher, store("now"))
    markers(watcher, elsewhere, store("markers"))
    groups(watcher, store("groups"))
    trees(watcher, store("trees"))
    targets(watcher, store("targets"))
    time_is_kept(watcher, elsewhere, store("time"))
    golden()
    print(f"    everything holds, {time.monotonic() - started:.1f} s")


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except Failed as failed:
        sys.exit(f"FAILED: {failed}")
