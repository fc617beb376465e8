"""A client of the resource service, made from the public proto by another implementation of gRPC: scripts/test-resources runs it.

    client.py ENDPOINT OTHER PREFIX    writes through ENDPOINT, and looks at OTHER as well

Ends with an error at the first thing that is not as it should be. PREFIX begins all names, so that runs do not meet.
"""

import sys
import threading
import time
import queue

import grpc
from google.protobuf import any_pb2

from consul import resource_pb2 as pb
from consul import resource_pb2_grpc
from headwater import resource_type_pb2
from protos import demo_v2_pb2 as demo

# Longer than anything here may take on a busy machine; only a defect runs into it.
TIMEOUT_S = 60

ARTIST = pb.Type(group="demo", group_version="v2", kind="Artist")
ALBUM = pb.Type(group="demo", group_version="v2", kind="Album")
TOMBSTONE = pb.Type(group="internal", group_version="v1", kind="Tombstone")
UNITS = pb.Tenancy(partition="default", namespace="default")


class Failed(Exception):
    """Something is not as it should be."""


def check(condition, what):
    if not condition:
        raise Failed(what)
    print(f"    {what}")


def refused(code, what, call, *args, **kwargs):
    """The call must be refused with this code; its text."""
    try:
        call(*args, timeout=TIMEOUT_S, **kwargs)
    except grpc.RpcError as error:
        check(error.code() == code, f"{what}: {error.code().name} ({error.details()})")
        return error.details()
    raise Failed(f"{what}: was not refused")


def eventually(what, condition):
    give_up = time.monotonic() + TIMEOUT_S
    while not condition():
        if time.monotonic() > give_up:
            raise Failed(f"waited in vain: {what}")
        time.sleep(0.02)
    print(f"    {what}")


def any_of(message):
    data = any_pb2.Any()
    data.Pack(message)
    return data


class Watch:
    """Collects what a watch tells."""

    def __init__(self, stub, type_, prefix, metadata=()):
        request = pb.WatchListRequest(type=type_, name_prefix=prefix)
        self.events = queue.Queue()
        self.call = stub.WatchList(request, metadata=metadata)
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
            raise Failed(f"the watch ended: {event}")
        kind = event.WhichOneof("event")
        resource = getattr(event, kind).resource if kind in ("upsert", "delete") else None
        return kind, resource and resource.id.name, resource, event.headwater_index

    def end(self):
        self.call.cancel()


def main(endpoint, other, prefix):
    stub = resource_pb2_grpc.ResourceServiceStub(grpc.insecure_channel(endpoint))
    elsewhere = resource_pb2_grpc.ResourceServiceStub(grpc.insecure_channel(other))

    def read(id_, at=stub):
        try:
            consistent = (("x-consul-consistency-mode", "consistent"),)
            return at.Read(pb.ReadRequest(id=id_), metadata=consistent, timeout=TIMEOUT_S).resource
        except grpc.RpcError as error:
            if error.code() == grpc.StatusCode.NOT_FOUND:
                return None
            raise

    def write(resource):
        return stub.Write(pb.WriteRequest(resource=resource), timeout=TIMEOUT_S).resource

    def listed(type_, name_prefix):
        request = pb.ListRequest(type=type_, tenancy=UNITS, name_prefix=name_prefix)
        return stub.List(request, timeout=TIMEOUT_S).resources

    def owned(owner):
        return stub.ListByOwner(pb.ListByOwnerRequest(owner=owner), timeout=TIMEOUT_S).resources

    print("  write")
    artist_id = pb.ID(name=f"{prefix}-korn", type=ARTIST, tenancy=UNITS)
    artist = write(pb.Resource(id=artist_id, data=any_of(demo.Artist(name="Korn", genre=demo.GENRE_METAL))))
    check(artist.id.uid and artist.version and artist.generation, "uid, version and generation are set")
    stored = demo.Artist()
    artist.data.Unpack(stored)
    check(stored.active, "the type's default was filled in")
    check(read(artist.id) == artist, "what is read is what was written")
    check(read(artist.id, elsewhere) == artist, "and on another node")

    print("  compare and set")
    stale = artist.version
    artist.metadata["from"] = "Bakersfield"
    artist = write(artist)
    check(artist.version != stale, "a write with the stored version is done")
    late = pb.Resource()
    late.CopyFrom(artist)
    late.version = stale
    refused(grpc.StatusCode.ABORTED, "a write with an older version", stub.Write, pb.WriteRequest(resource=late))
    generation = artist.generation
    artist = write(pb.Resource(id=artist_id, metadata={"from": "California"}, data=artist.data))
    check(artist.generation != generation and artist.id.uid, "a write without a version replaces")

    print("  validation")
    bad = pb.Resource(id=artist_id, data=any_of(demo.Artist()))
    text = refused(grpc.StatusCode.INVALID_ARGUMENT, "a broken rule", stub.Write, pb.WriteRequest(resource=bad))
    check("artist.name required" in text, "the rule's text is said")
    refused(
        grpc.StatusCode.INVALID_ARGUMENT,
        "the same before it is written",
        stub.MutateAndValidate,
        pb.MutateAndValidateRequest(resource=bad),
    )
    wrong = pb.Resource(id=artist_id, data=any_of(demo.Album(title="x")))
    refused(grpc.StatusCode.INVALID_ARGUMENT, "data of another type", stub.Write, pb.WriteRequest(resource=wrong))
    unknown = pb.ID(name="x", type=pb.Type(group="demo", group_version="v9", kind="Artist"), tenancy=UNITS)
    refused(grpc.StatusCode.INVALID_ARGUMENT, "an unknown type", stub.Read, pb.ReadRequest(id=unknown))

    print("  status")
    condition = pb.Condition(type="Accepted", state=pb.Condition.STATE_TRUE, reason="Good")
    status = pb.Status(observed_generation=artist.generation, conditions=[condition])
    with_status = stub.WriteStatus(
        pb.WriteStatusRequest(id=artist.id, version=artist.version, key="example", status=status), timeout=TIMEOUT_S
    ).resource
    check(with_status.generation == artist.generation, "a status leaves the generation alone")
    check(with_status.version != artist.version, "and changes the version")
    check(with_status.status["example"].HasField("updated_at"), "its time is the server's")
    artist = with_status

    print("  owners and uids")
    never = "01ARZ3NDEKTSV4RRFFQ69G5FAV"
    child_id = pb.ID(name=f"{prefix}-child", type=ALBUM)
    child_data = any_of(demo.Album(title="child"))
    for uid in (artist.id.uid, ""):
        partly = pb.ID(uid=uid, name=artist.id.name, type=ARTIST)
        child = write(pb.Resource(id=child_id, owner=partly, data=child_data))
        check(child.owner == artist.id, f"the owner's {'units are' if uid else 'uid and units are'} filled in")
    invented = pb.ID(uid=never, name=artist.id.name, type=ARTIST)
    orphan = pb.Resource(id=pb.ID(name=f"{prefix}-orphan", type=ALBUM), owner=invented, data=child_data)
    for what, call in (
        ("an owner that does not live", lambda **kwargs: stub.Write(pb.WriteRequest(resource=orphan), **kwargs)),
        ("the same before", lambda **kwargs: stub.MutateAndValidate(pb.MutateAndValidateRequest(resource=orphan), **kwargs)),
    ):
        refused(grpc.StatusCode.INVALID_ARGUMENT, what, call)
    other_life = pb.ID(uid=never, name=child.id.name, type=ALBUM)
    refused(grpc.StatusCode.FAILED_PRECONDITION, "a delete of another life", stub.Delete, pb.DeleteRequest(id=other_life))
    stub.Delete(pb.DeleteRequest(id=child.id), timeout=TIMEOUT_S)
    refused(grpc.StatusCode.ABORTED, "a write to a life that has ended", stub.Write, pb.WriteRequest(resource=child))
    check(read(pb.ID(name=child.id.name, type=ALBUM)) is None, "creates nothing")

    print("  watch and owner")
    watch = Watch(stub, ALBUM, prefix)
    check(watch.next()[0] == "end_of_snapshot", "a watch of nothing begins with the end of the snapshot")
    albums = []
    for title in ("issues", "untouchables"):
        album_id = pb.ID(name=f"{prefix}-{title}", type=ALBUM, tenancy=UNITS)
        album = write(pb.Resource(id=album_id, owner=artist.id, data=any_of(demo.Album(title=title))))
        albums.append(album)
        kind, name, told, index = watch.next()
        check((kind, told) == ("upsert", album), f"{name} is told as it was written, at index {index}")
    check(sorted(it.id.name for it in owned(artist.id)) == sorted(it.id.name for it in albums), "both are owned")
    again = Watch(stub, ALBUM, prefix)
    names = {again.next()[1] for _ in albums}
    check(names == {it.id.name for it in albums}, "a second watch begins with both")
    check(again.next()[0] == "end_of_snapshot", "then the end of the snapshot")
    again.end()

    print("  a delete that loses the race")
    refused(
        grpc.StatusCode.ABORTED,
        "a delete with an older version",
        stub.Delete,
        pb.DeleteRequest(id=artist.id, version=stale),
    )
    check(read(artist.id) == artist and len(owned(artist.id)) == 2, "leaves the resource and what it owns")
    check(not listed(TOMBSTONE, f"tombstone-{artist_id.name}-"), "and no tombstone")

    print("  finalizers")
    artist.metadata["finalizers"] = "example"
    artist = write(artist)
    stub.Delete(pb.DeleteRequest(id=artist.id), timeout=TIMEOUT_S)
    artist = read(artist.id)
    check("deletionTimestamp" in artist.metadata, "a resource with finalizers is marked when it is deleted")
    version = artist.version
    stub.Delete(pb.DeleteRequest(id=artist.id), timeout=TIMEOUT_S)
    check(read(artist.id).version == version, "a second delete changes nothing")
    late = pb.Resource()
    late.CopyFrom(artist)
    late.metadata["more"] = "x"
    refused(grpc.StatusCode.INVALID_ARGUMENT, "another change of it", stub.Write, pb.WriteRequest(resource=late))
    del artist.metadata["finalizers"]
    artist = write(artist)
    check(read(artist.id) is not None, "it is still there without finalizers")
    check(len(owned(artist.id)) == 2, "and so is what it owns")

    print("  cascade")
    stub.Delete(pb.DeleteRequest(id=artist.id, version=artist.version), timeout=TIMEOUT_S)
    check(read(artist.id) is None, "deleted again, it is gone")
    gone = [watch.next() for _ in albums]
    check([kind for kind, *_ in gone] == ["delete"] * 2, "the watch tells that what it owned goes")
    eventually("nothing of it is left", lambda: not owned(artist.id))
    for album in albums:
        eventually(f"{album.id.name} is gone elsewhere, too", lambda: read(album.id, elsewhere) is None)
    watch.end()
    resumed = Watch(elsewhere, ALBUM, prefix, metadata=(("headwater-resume-index", str(index)),))
    check(resumed.next()[0] == "end_of_snapshot", "a watch resumed on another node has no list")
    told = [resumed.next() for _ in albums]
    resumed.end()
    check(told == gone, "and tells what came after the index")
    check(not listed(ALBUM, prefix), "nothing is listed")

    print("  types at run time")
    with open(sys.argv[4], "rb") as file:
        descriptors = file.read()
    kind = f"Band{prefix.replace('-', '').capitalize()}"
    registration = resource_type_pb2.ResourceType(
        group="demo",
        group_version="v7",
        kind=kind,
        scope=resource_type_pb2.ResourceType.SCOPE_CLUSTER,
        message="demo.v2.Artist",
        descriptor_set=descriptors,
        rules=[resource_type_pb2.ResourceType.Rule(expression="data.members.size() > 1", message="a band has members")],
    )
    registering = pb.Type(group="headwater", group_version="v1", kind="ResourceType")
    name = f"demo-v7-{kind.lower()}"
    write(pb.Resource(id=pb.ID(name=name, type=registering), data=any_of(registration)))
    band = pb.ID(name="b", type=pb.Type(group="demo", group_version="v7", kind=kind))
    lonely = pb.Resource(id=band, data=any_of(demo.Artist(name="x")))
    text = refused(
        grpc.StatusCode.INVALID_ARGUMENT, "its rule on another node", elsewhere.Write, pb.WriteRequest(resource=lonely)
    )
    check("a band has members" in text, "with its text")
    watch = Watch(elsewhere, band.type, "")
    check(watch.next()[0] == "end_of_snapshot", "it is watched on another node")
    full = pb.Resource(id=band, data=any_of(demo.Artist(name="x", members={"a": "drums", "b": "bass"})))
    written = write(full)
    check(watch.next()[2] == written, "which tells what is written here")
    refused(
        grpc.StatusCode.FAILED_PRECONDITION,
        "deleting a type in use",
        stub.Delete,
        pb.DeleteRequest(id=pb.ID(name=name, type=registering)),
    )
    stub.Delete(pb.DeleteRequest(id=written.id), timeout=TIMEOUT_S)
    watch.end()


if __name__ == "__main__":
    try:
        main(*sys.argv[1:4])
    except (Failed, queue.Empty, grpc.RpcError) as failure:
        print(f"FAILED: {failure!r}", file=sys.stderr)
        sys.exit(1)
