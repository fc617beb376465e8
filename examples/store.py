"""One change over a key, a service instance and a resource by headwater.v1.Store: read, committed, shown, followed.

    scripts/cluster up
    headwater resource apply -f examples/demo-types.yaml
    pip install grpcio grpcio-tools
    mkdir -p examples/pb
    python -m grpc_tools.protoc -I proto -I examples --python_out=examples/pb --grpc_python_out=examples/pb \
        proto/headwater/*.proto proto/consul/*.proto proto/etcd/*.proto proto/google/api/*.proto examples/protos/demo_v2.proto
    PYTHONPATH=examples/pb python examples/store.py korn 127.0.0.1:2379 127.0.0.1:22379 127.0.0.1:32379

An artist takes a stage. The key says who plays, the service instance is where to listen, and the artist is a resource. Then
every change of the three is printed until Ctrl-C. Stop the member that is followed: the program goes on at another one.
"""

import collections
import datetime
import os
import sys
import time

import grpc

from consul import node_pb2, resource_pb2
from etcd import kv_pb2, rpc_pb2
from headwater import commit_pb2, store_pb2, store_pb2_grpc
from protos import demo_v2_pb2

STAGE = "/kv/stages/main"
INSTANCE = "/services/stream/stages/main"
ARTISTS = "/resources/demo/v2/Artist/default/default/"

# Another member may do better. Whether a commit took effect is open then.
TRANSIENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
ATTEMPT_S = 5
TOTAL_S = 30
# A member whose machine is gone does not close its connections. So each is asked every 10 s, also while nothing changes, and
# has 5 s to answer.
KEEPALIVE = [
    ("grpc.keepalive_time_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 5_000),
    ("grpc.http2.max_pings_without_data", 0),
]


class Store:
    """headwater.v1.Store at one of the members, and at the next one when that fails."""

    def __init__(self, endpoints):
        channels = [(endpoint, grpc.insecure_channel(endpoint, options=KEEPALIVE)) for endpoint in endpoints]
        self.members = collections.deque((endpoint, store_pb2_grpc.StoreStub(channel)) for endpoint, channel in channels)

    @property
    def endpoint(self):
        return self.members[0][0]

    @property
    def stub(self):
        return self.members[0][1]

    def read(self, targets):
        """The entities of the targets, all at one index."""
        request = store_pb2.ReadRequest(targets=targets)
        return self._call(lambda: self.stub.Read(request, timeout=ATTEMPT_S))

    def commit(self, request):
        """Commits once, however often the request is sent: it needs an idempotency key."""
        return self._call(lambda: self.stub.Commit(request, timeout=ATTEMPT_S))

    def history(self, targets, position, live=False):
        """Messages with the changes after a position. Each change comes once, whatever members stop; but a command
        that comes in parts (`continued`) begins again if its stream breaks within it."""
        while True:
            # "from" is a keyword of Python.
            request = store_pb2.HistoryRequest(targets=targets, live=live, **{"from": position})
            try:
                for message in self.stub.History(request):
                    position = store_pb2.Point(index=message.reached, epoch=message.epoch)
                    yield message
                return
            except grpc.RpcError as error:
                self._leave(error)

    def _call(self, attempt):
        give_up = time.monotonic() + TOTAL_S
        while True:
            try:
                return attempt()
            except grpc.RpcError as error:
                if time.monotonic() > give_up:
                    raise
                self._leave(error)

    def _leave(self, error):
        """Turns to the next member, unless that would answer the same."""
        if error.code() not in TRANSIENT:
            raise error
        print(f"{self.endpoint}: {error.code().name}", flush=True)
        self.members.rotate(-1)
        time.sleep(0.2)
        print(f"going on at {self.endpoint}", flush=True)


def take_stage(store, artist):
    """Lets the artist play, whatever others do at the same time. Returns the state before, the request, and the answer."""
    targets = [STAGE, INSTANCE, ARTISTS + artist]
    while True:
        state = store.read(targets)
        request = change(artist, state)
        try:
            return state, request, store.commit(request)
        except grpc.RpcError as error:
            number = dict(error.trailing_metadata() or ()).get("headwater-condition")
            if error.code() != grpc.StatusCode.FAILED_PRECONDITION or number is None:
                raise
            # The request cannot take effect any more: what has changed stays changed.
            print(f"condition {number} does not hold since #{state.index}: reading again", flush=True)


def change(artist, state):
    """The commit that lets the artist play if nothing has changed since the state was read."""
    found = {entity.path: entity for entity in state.entities}
    resource = resource_pb2.Resource()
    if ARTISTS + artist in found:
        found[ARTISTS + artist].data.Unpack(resource)
    else:
        resource.id.name = artist
        resource.id.type.CopyFrom(resource_pb2.Type(group="demo", group_version="v2", kind="Artist"))
        resource.id.tenancy.CopyFrom(resource_pb2.Tenancy(partition="default", namespace="default"))
        resource.data.Pack(demo_v2_pb2.Artist(name=artist))
    resource.metadata["stage"] = "main"

    put = rpc_pb2.PutRequest(key=b"stages/main", value=artist.encode())
    register = commit_pb2.Register(
        node=node_pb2.Node(Node="stages", Address="127.0.0.1"),
        service=node_pb2.NodeService(Service="stream", ID="main", Port=8000, Meta={"artist": artist}),
    )
    write = resource_pb2.WriteRequest(resource=resource)
    return commit_pb2.CommitRequest(
        conditions=[
            commit_pb2.Condition(target=target, unchanged_since=state.index)
            for target in (STAGE, INSTANCE, ARTISTS + artist)
        ],
        operations=[
            commit_pb2.Operation(put=put),
            commit_pb2.Operation(register=register),
            commit_pb2.Operation(write_resource=write),
        ],
        # New for each change, the same whenever this one is sent.
        idempotency_key=os.urandom(16),
    )


def show(message):
    """Prints the changes of a message of the history."""
    for command in message.commands:
        at = datetime.datetime.fromtimestamp(command.unix_ms / 1000, datetime.timezone.utc)
        print(f"#{command.index} {at:%H:%M:%S} by {command.face}")
        for change in command.changes:
            kind = store_pb2.EntityChange.Kind.Name(change.kind).lower()
            print(f"  {kind} {change.path}: {words(change.before)} -> {words(change.after)}")
    sys.stdout.flush()


def words(entity):
    """An entity in a few words. Its space decides what its data is."""
    key, instance, resource = kv_pb2.KeyValue(), node_pb2.CheckServiceNode(), resource_pb2.Resource()
    if entity.data.Unpack(key):
        return key.value.decode(errors="replace")
    if entity.data.Unpack(instance):
        return f"{instance.Node.Address}:{instance.Service.Port} {instance.Service.Meta['artist']}"
    if entity.data.Unpack(resource):
        return f"version {resource.version}, stage {resource.metadata['stage']}"
    return "nothing"


def main(artist, endpoints):
    store = Store(endpoints)
    before, request, done = take_stage(store, artist)
    print(f"read at #{before.index}")
    for entity in before.entities:
        print(f"  {entity.path}: {words(entity)}")
    print(f"committed at #{done.index}, revision {done.revision}")

    # So would a client do whose answer was lost.
    again = store.commit(request)
    print(f"sent again: {'done before' if again.done_before else 'done'} at #{again.index}")

    targets = [STAGE, INSTANCE, ARTISTS + artist]
    position = store_pb2.Point(index=before.index, epoch=before.epoch)
    for message in store.history(targets, position):
        show(message)
        position = store_pb2.Point(index=message.reached, epoch=message.epoch)

    print(f"following at {store.endpoint} from #{position.index}", flush=True)
    for message in store.history(targets, position, live=True):
        show(message)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit("usage: store.py ARTIST ENDPOINT...")
    try:
        main(sys.argv[1], sys.argv[2:])
    except grpc.RpcError as error:
        sys.exit(f"{error.code().name}: {error.details()}")
    except KeyboardInterrupt:
        pass
