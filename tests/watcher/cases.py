"""The numbered cases that need nothing but a cluster that is well: what is written, and what followers are told.

Every function has keys of its own. Whoever followed the state in it is compared with a read at its end.
"""

import base64
import http.client
import json
import time
import urllib.parse
import urllib.request

import grpc

from google.watcher.v1 import watch_pb2 as pb
from held import Failed
from store import Store
from streams import HTTP_STATUS, SILENCE_S, TIMEOUT_S, Ended, Events, Grpc, Lines, Stream, base64url, refusal, show

TREE = "/app?recursive=true"
WHOLE = ["C(,E,d0,+)", "C(a,E,1,+)", "C(b,E,2,+)", "C(d,E,Empty,+)", "C(d/x,E,3,m)"]
INVALID = "INVALID_ARGUMENT"
# What slow clients do not read: more than lies in the buffers between, and more commits than a client is told one by one.
SLOW_WRITES = 2000
SLOW_VALUE_BYTES = 8 * 1024
# Writes that are under way at once.
PIPELINE = 32
# Messages that a slow client takes before it wants them.
SLOW_AHEAD = 1


class Run:
    """One case over one transport at one node; `other` is another node of the cluster."""

    def __init__(self, held, transport, endpoint, other, folder):
        self.held = held
        self.check = held.check
        self.transport = transport
        self.endpoint = endpoint
        self.other = other
        self.store = Store(endpoint, folder)
        self.streams = []

    def open(self, target, marker=b"", at=None, view=None, slow=False, timeout_s=None):
        """A stream about any target. One that goes on after a marker knows what `view` knows."""
        client = self.transport(at or self.endpoint, slow=slow)
        begins = "state" if not marker else "now" if marker == b"now" else "marker"
        source = client.open(target, marker, timeout_s)
        stream = Stream(self.check, source, view, begins, SLOW_AHEAD if slow else 0)
        self.streams.append((stream, target))
        return stream

    def watch(self, path, marker=b"", **how):
        return self.open(self.store.target(path), marker, **how)

    def refused(self, code, what, target, marker=b""):
        stream = self.open(target, marker)
        try:
            change = stream.next()
        except Ended as ended:
            self.check(ended.code == code and ended.details, f"{what}: {ended}")
            return
        raise Failed(f"{what}: was not refused, but told {change}")

    def tree(self, path):
        path, _, query = path.partition("?")
        return self.store.tree(path, "recursive=true" in query)

    def settle(self):
        """Whoever knows everything knows what a read shows."""
        for stream, target in self.streams:
            is_here = target.startswith(self.store.target(""))
            if is_here and stream.view.is_whole and not stream.is_over.is_set():
                path = urllib.parse.unquote(target.removeprefix(self.store.target("")))
                stream.settle("    the view", self.tree(path))

    def leave(self):
        for stream, _ in self.streams:
            stream.cancel()


def w01_to_w05_the_state_comes_first(run):
    run.store.fixture()
    children = run.watch("/app")
    children.expect("W1", ["C(,E,d0,+)", "C(a,E,1,+)", "C(b,E,2,+)", "C(d,E,Empty,m)"])
    children.silent("W1")
    run.watch(TREE).expect("W2", WHOLE)
    nothing = run.watch("/nope")
    nothing.expect("W3", ["C(,X,m)"])
    nothing.silent("W3")
    run.store.put("/nope", "v")
    nothing.expect("W4", ["C(,E,v,m)"])
    run.watch("/app/a").expect("W5", ["C(,E,1,m)"])


def w06_to_w08_now_skips_the_state(run):
    run.store.fixture()
    there, not_there = run.watch("/app", b"now"), run.watch("/nope", b"now")
    there.expect("W6", ["C(,S,m)"])
    not_there.expect("W7", ["C(,S,m)"])
    there.silent("W6")
    run.store.put("/app/a", "7")
    there.expect("W6", ["C(a,E,7,m)"])
    not_there.silent("W7")
    for marker in [b"NOW", b"now ", b"now\0", b"no"]:
        run.refused(INVALID, f"W8, {marker}", run.store.target("/app"), marker)


def _marked(run):
    """A view of the fixture, of which the stream is over."""
    run.store.fixture()
    stream = run.watch(TREE)
    stream.expect("the fixture", WHOLE)
    stream.cancel()
    return stream.view


def w09_nothing_was_missed(run):
    view = _marked(run)
    marker, before = view.marker, dict(view.elements)
    stream = run.watch(TREE, marker, at=run.other, view=view)
    again = stream.expect("W9, at another node", ["C(,E,d0,m)"])
    stream.silent("W9")
    run.check(view.elements == before, "W9: the client knows what it knew")
    run.watch(TREE, again).expect("W9", ["C(,E,d0,m)"])
    # Nothing is told again that was told before.
    run.store.put("/app/a", "8")
    marker = stream.expect("a change", ["C(a,E,8,m)"])
    run.watch(TREE, marker).expect("W9, after a change", ["C(,E,d0,m)"])
    nothing = run.watch("/nope")
    marker = nothing.expect("nothing", ["C(,X,m)"])
    run.watch("/nope", marker).expect("W9, of nothing", ["C(,X,m)"])


def w10_w11_what_was_missed_comes_first(run):
    view = _marked(run)
    marker = view.marker
    run.store.put("/app/b", "7")
    run.store.delete("/app/a")
    # In the order in which it happened, which is not that of the names.
    run.watch(TREE, marker, at=run.other, view=view).expect("W10", ["C(b,E,7,+)", "C(a,X,m)"])
    run.store.put("/app/b", "8")
    group = run.watch(TREE, marker).group()
    told = [change.data for change in group if change.element == "b"]
    run.check(told in (["8"], ["7", "8"]), f"W11: {told}")


def w12_gone_and_back(run):
    view = _marked(run)
    run.store.delete("/app/b")
    run.store.put("/app/b", "9")
    group = show(run.watch(TREE, view.marker, view=view).group())
    run.check(group in (["C(b,E,9,m)"], ["C(b,X,+)", "C(b,E,9,m)"]), f"W12: {group}")


def w14_w15_markers_that_are_none(run):
    marker = _marked(run).marker
    for other in ["/app", "/app/a?recursive=true", "/nope"]:
        run.refused(INVALID, f"W14, {other}", run.store.target(other), marker)
    # What means the same is the same.
    run.watch("/app?x=y&recursive=true", marker).expect("W14", ["C(,E,d0,m)"])
    flipped = [marker[:at] + bytes([marker[at] ^ 1]) + marker[at + 1 :] for at in range(len(marker))]
    cut = [marker[:length] for length in range(1, len(marker))]
    # A megabyte does not fit into the head of a request of HTTP.
    huge = b"\0" * (1 << 20 if run.transport is Grpc else 24 * 1024)
    for wrong in [b"garbage", b"\0", b"\0" * len(marker), marker + b"\0", huge, *flipped, *cut]:
        run.refused(INVALID, f"W15, {len(wrong)} bytes", run.store.target(TREE), wrong)


def w19_only_a_closed_group_has_a_marker(run):
    run.store.fixture()
    stream = run.watch(TREE + "&batch_bytes=1")
    marker = stream.expect("W19", WHOLE)
    run.store.txn([("/app/a", "7"), ("/app/b", "8"), ("/app/c", "9")])
    first, second = stream.next(), stream.next()
    is_open = first.continued and second.continued and not first.marker and not second.marker
    run.check(is_open, f"W19: {show([first, second])}")
    # The client goes before the group is closed: for it, nothing of that has happened.
    stream.cancel()
    run.check(stream.view.marker == marker and stream.view.elements["a"] == "1", "W19: an open group counts for nothing")
    wanted = ["C(a,E,7,+)", "C(b,E,8,+)", "C(c,E,9,m)"]
    run.watch(TREE, stream.view.marker, view=stream.view).expect("W19, it comes again whole", wanted)


def w20_to_w24_groups_are_commands(run):
    run.store.fixture()
    tree, small = run.watch(TREE), run.watch(TREE + "&batch_bytes=64")
    tree.expect("the fixture", WHOLE)
    small.group()
    run.check(small.messages >= 3, f"W21: the state in {small.messages} messages")
    before = small.messages
    run.store.txn([("/app/a", "7"), ("/app/c", "8")], ["/app/b"])
    wanted = ["C(a,E,7,+)", "C(b,X,+)", "C(c,E,8,m)"]
    tree.expect("W20", wanted)
    small.expect("W21", wanted)
    run.check(small.messages >= before + 2, f"W21: in {small.messages - before} messages")
    # Nothing comes between, whatever else is written.
    noise = [run.store.put_later("/app/noise", str(number)) for number in range(PIPELINE)]
    for number in range(20):
        run.store.txn([("/app/a", str(number)), ("/app/c", str(number))])
    noise = len([put.result() for put in noise])
    sizes = [len(tree.group()) for _ in range(20 + noise)]
    run.check(sorted(sizes) == [1] * noise + [2] * 20, f"W20: 20 groups of two, {noise} of one")
    for put in [run.store.put_later("/app/many", str(number)) for number in range(100)]:
        put.result()
    begin, seen = tree.messages, [tree.next() for _ in range(100)]
    each = all(change.element == "many" and not change.continued for change in seen)
    revisions = [change.revision for change in seen]
    in_order = revisions == sorted(set(revisions))
    run.check(each and in_order, f"W22: 100 groups in {tree.messages - begin} messages, in order")
    run.store.txn([("/app/a", "8"), ("/other/z", "10")])
    tree.expect("W23", ["C(a,E,8,m)"])
    run.store.txn([("/other/z", "11")])
    tree.silent("W24")


def _values(number):
    return f"{number:06}".ljust(SLOW_VALUE_BYTES, ".")


def _write_a_lot(run):
    """Commits in pairs of which a client must see both or none, and comings and goings; some thousand, quickly."""
    begin, under_way = time.monotonic(), []
    for number in range(SLOW_WRITES):
        if number % 3 == 0:
            under_way.append(run.store.put_later("/app/b", _values(number)))
        elif number % 50 == 1:
            under_way.append(run.store.txn_later([], ["/app/d/x"]))
        elif number % 50 == 2:
            under_way.append(run.store.txn_later([("/app/d/x", _values(number))]))
        else:
            under_way.append(run.store.txn_later([("/app/a", _values(number)), ("/app/twin", _values(number))]))
        if len(under_way) >= PIPELINE:
            under_way.pop(0).result()
    for write in under_way:
        write.result()
    run.store.put("/app/last", "!")
    print(f"    {SLOW_WRITES} commits, {time.monotonic() - begin:.1f} s")


def w25_w52_slow_clients(run):
    run.store.fixture()
    run.store.put("/app/twin", "1")
    slow, leaving = run.watch(TREE, slow=True), run.watch(TREE, slow=True)
    slow.group()
    leaving.group()
    _write_a_lot(run)
    groups, last = 0, {}
    while slow.view.elements.get("last") != "!":
        for change in slow.group():
            run.held.insist(change.revision == 0 or change.revision > last.get(change.element, 0), f"W25: order of {change}")
            last[change.element] = change.revision
        groups += 1
        run.held.insist(slow.view.elements["a"] == slow.view.elements["twin"], "W25: half a transaction")
    # Some came while the buffers took them; the rest came to few.
    run.check(groups < SLOW_WRITES / 2, f"W25: {SLOW_WRITES} commits came in {groups} groups, no half of one")
    slow.settle("W25", run.tree(TREE))
    # A slow client is not sent away, as the case has it, but told less. Whoever goes by itself goes on with the last marker.
    for _ in range(5):
        leaving.group()
    run.check(leaving.view.elements.get("last") is None, "W52: far behind, and not sent away")
    leaving.cancel()
    there = run.watch(TREE, leaving.view.marker, at=run.other, view=leaving.view)
    there.group()
    there.settle("W52, at another node", run.tree(TREE))


def w26_a_removal_has_no_data(run):
    run.store.fixture()
    tree, children = run.watch(TREE), run.watch("/app")
    for stream in (tree, children):
        stream.group()
    run.store.delete("/app/a")
    for stream in (tree, children):
        stream.expect("W26", ["C(a,X,m)"])


def w27_to_w29_directories_come_with_what_is_in_them(run):
    run.store.fixture()
    tree, children = run.watch(TREE), run.watch("/app")
    for stream in (tree, children):
        stream.group()
    run.store.put("/app/new/deep", "1")
    tree.expect("W27", ["C(new,E,Empty,+)", "C(new/deep,E,1,m)"])
    children.expect("W28", ["C(new,E,Empty,m)"])
    run.store.put("/app/new/deep2", "2")
    tree.expect("W27", ["C(new/deep2,E,2,m)"])
    children.silent("W29")
    run.store.put("/app/x/y/z", "3")
    tree.expect("W27, two directories", ["C(x,E,Empty,+)", "C(x/y,E,Empty,+)", "C(x/y/z,E,3,m)"])
    children.expect("W28", ["C(x,E,Empty,m)"])
    # What carries something of its own and has something below it tells of the first alone.
    run.store.put("/app/a/below", "4")
    children.silent("W29")
    run.store.put("/app/a", "5")
    children.expect("W29, its own value", ["C(a,E,5,m)"])


def w30_to_w32_a_subtree_goes_as_one(run):
    run.store.fixture()
    run.store.put("/app/d/w/v", "4")
    tree = run.watch(TREE)
    before = run.watch(TREE)
    tree.group()
    before.group()
    before.cancel()
    run.store.delete("/app/d", subtree=True)
    tree.expect("W30", ["C(d,X,m)"])
    # The state that was listed for the others is not told to who comes later.
    run.watch(TREE).expect("W30, the state afterwards", ["C(,E,d0,+)", "C(a,E,1,+)", "C(b,E,2,m)"])
    run.watch(TREE, before.view.marker, view=before.view).expect("W31", ["C(d,X,m)"])
    run.store.put("/app/d/y", "5")
    tree.expect("W32", ["C(d,E,Empty,+)", "C(d/y,E,5,m)"])
    gone = [name for name in ("d/x", "d/w", "d/w/v") if name in tree.view.elements]
    run.check(not gone, "W32: what went with it is not there again")


def w33_a_directory_goes_with_the_last(run):
    run.store.fixture()
    tree, children = run.watch(TREE), run.watch("/app")
    for stream in (tree, children):
        stream.group()
    run.store.put("/app/d/y", "4")
    run.store.delete("/app/d/y")
    tree.group()
    tree.expect("W33, not the last", ["C(d/y,X,m)"])
    run.store.delete("/app/d/x")
    tree.expect("W33", ["C(d,X,m)"])
    children.expect("W33, not recursive", ["C(d,X,m)"])


def w34_w35_the_entity_itself_comes_and_goes(run):
    run.store.fixture()
    tree = run.watch(TREE)
    tree.group()
    run.store.delete("/app")
    tree.expect("W35", ["C(,E,Empty,m)"])
    run.store.delete("/app", subtree=True)
    tree.expect("W34", ["C(,X,m)"])
    tree.silent("W34")
    run.store.put("/app/a", "6")
    tree.expect("W34", ["C(,E,Empty,+)", "C(a,E,6,m)"])


def w36_to_w43_targets(run):
    run.store.fixture()
    flat = ["/", "/nodes", "/leases", "/cluster/members"]
    for target in flat:
        run.refused("UNIMPLEMENTED", f"W36 {target}", target + "?recursive=true")
        group = run.open(target + "?recursive=false").group()
        run.check(group[0].element == "" and group[0].state == "E", f"W36 {target}, not recursive: it is there")
    for value in ["TRUE", "1", "yes", "", "true&recursive=true", "false&recursive=true"]:
        run.refused(INVALID, f"W37 recursive={value}", run.store.target(f"/app?recursive={value}"))
    children = ["C(,E,d0,+)", "C(a,E,1,+)", "C(b,E,2,+)", "C(d,E,Empty,m)"]
    for query in ["", "?", "?recursive=false"]:
        run.watch("/app" + query).expect(f"W37 {query}", children)
    run.watch("/app/a?foo=bar").expect("W38", ["C(,E,1,m)"])
    run.watch("/app?foo=bar&recursive=true&foo=2").expect("W38, beside another", WHOLE)
    for target in ["app", "", "//", "myservice.googleapis.com/app", "http://h/app", "//kv/app", "/nosuchspace/app"]:
        run.refused(INVALID, f"W39 {target!r}", target)
    names = [("/a%20b", "/a b"), ("/a+b", "/a+b"), ("/%E2%82%AC", "/\u20ac"), ("/a%2520b", "/a%20b")]
    for path, key in names:
        run.store.put(key, key)
        run.watch(path).expect(f"W42 {path}" if "25" in path else f"W40 {path}", [f"C(,E,{key},m)"])
    told = [change.element for change in run.watch("?x=%20y+z").group()]
    wanted = sorted(["", "app", "other", *(key[1:] for _, key in names)], key=str.encode)
    run.check(told == wanted, f"W40: names are told as they are: {told}")
    for path in ["/a%2Fb", "/%zz", "/%", "/%FF", "/a/../b", "/a/./b", "/%2e%2e/b"]:
        run.refused(INVALID, f"W41 {path}", run.store.target(path))
    run.refused(INVALID, "W43", run.store.target("/app#x"))


def w48_w49_nothing_is_late_or_lost(run):
    there = Store(run.other, run.store.folder)
    for number in range(20):
        writer, reader = [(run.store, run.other), (there, run.endpoint)][number % 2]
        writer.put("/here", f"w48-{number}")
        stream = run.watch("/here", at=reader)
        stream.expect("W48, written at another node", [f"C(,E,w48-{number},m)"])
        # The first message is the point from which on nothing is missed.
        writer.put("/here", f"w49-{number}")
        stream.expect("W49, written at another node", [f"C(,E,w49-{number},m)"])
        from_now = run.watch("/here", b"now", at=reader)
        from_now.expect("now", ["C(,S,m)"])
        writer.put("/here", f"w49-now-{number}")
        from_now.expect("W49, from now on", [f"C(,E,w49-now-{number},m)"])
        stream.group()


def _streams(endpoint):
    """How many streams a node says it has."""
    with urllib.request.urlopen(f"http://{endpoint}/metrics", timeout=TIMEOUT_S) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith('headwater_stream_open{api="watcher"} '):
                return int(float(line.split()[1]))
    raise Failed("the metric of streams is not there")


def _until_streams(endpoint, wanted):
    """How long that took."""
    begin = time.monotonic()
    while (found := _streams(endpoint)) != wanted:
        if time.monotonic() - begin > TIMEOUT_S:
            raise Failed(f"W53: {found} streams are there instead of {wanted}")
        time.sleep(0.01)
    return time.monotonic() - begin


def w53_who_leaves_is_forgotten(run):
    run.store.fixture()
    _until_streams(run.endpoint, 0)
    # As in the case, unless the machine has something else to do just then.
    took = []
    while not took or (min(took) > 1 and len(took) < 5):
        stream = run.watch("/app")
        stream.group()
        run.check(_streams(run.endpoint) == 1, "W53: one stream is there")
        stream.cancel()
        if run.transport is Grpc:
            code = stream.ended().code
            run.check(code == "CANCELLED", f"W53: {code}")
        took.append(_until_streams(run.endpoint, 0))
    run.check(min(took) <= 1, f"W53: forgotten after {min(took):.3f} s")
    # Long enough that the stream begins.
    for timeout_s in (0.5, 2, 8, 30):
        stream = run.watch("/app", timeout_s=timeout_s)
        ended = stream.ended()
        if stream.messages:
            break
    run.check(stream.messages > 0, f"W53: with a deadline of {timeout_s} s the stream begins")
    run.check(ended.code == "DEADLINE_EXCEEDED", f"W53: {ended}")
    _until_streams(run.endpoint, 0)


def _get(run, path, headers=None, method="GET"):
    connection = http.client.HTTPConnection(run.endpoint, timeout=TIMEOUT_S)
    connection.request(method, path, headers=headers or {})
    return connection, connection.getresponse()


def w54_the_form_of_json(run):
    run.store.fixture()
    target = urllib.parse.quote(run.store.target("/app?recursive=true"), safe="")
    run.check("%2Fapp%3Frecursive%3Dtrue" in target, f"W54: {target}")
    accept = {"Accept": "text/event-stream"} if run.transport is Events else {}
    connection, response = _get(run, f"/v1/watch?target={target}&resume_marker=bm93", accept)

    def piece():
        """The object that the next piece carries."""
        while line := response.readline().decode():
            if run.transport is Lines:
                return json.loads(line)["result"]
            if line.startswith("data: "):
                return json.loads(line.removeprefix("data: "))
        raise Failed("W54: the stream ended")

    said = piece()
    marker = said["changes"][0].pop("resumeMarker")
    run.check(said == {"changes": [{"state": "INITIAL_STATE_SKIPPED"}]}, f"W54: {said}")
    run.check(len(base64.b64decode(marker, validate=True)) > 8, f"W54: a marker is {marker}")
    run.store.put("/app", "d1")
    (change,) = piece()["changes"]
    run.check(set(change) == {"data", "resumeMarker"}, f"W54: what exists, of the entity itself, has {sorted(change)}")
    data = change["data"]
    wanted = {"@type": "type.googleapis.com/mvccpb.KeyValue", "value": "ZDE=", "version": "2"}
    same = all(data[name] == value for name, value in wanted.items())
    run.check(same and base64.b64decode(data["key"]) == run.store.key("/app"), f"W54: {data}")
    run.store.delete("/app/a")
    (change,) = piece()["changes"]
    del change["resumeMarker"]
    run.check(change == {"element": "a", "state": "DOES_NOT_EXIST"}, f"W54: {change}")
    run.store.put("/app/e/f", "1")
    above, _ = piece()["changes"]
    run.check(above["element"] == "e" and above["continued"] is True, f"W54: {above}")
    run.check(above["data"]["@type"] == "type.googleapis.com/google.protobuf.Empty", f"W54: {above['data']}")
    connection.close()


def w55_the_statuses_of_http(run):
    run.store.fixture()
    accept = {"Accept": "text/event-stream"} if run.transport is Events else {}
    target = urllib.parse.quote(run.store.target(TREE), safe="")

    def refused(code, path, headers=None):
        connection, response = _get(run, path, {**accept, **(headers or {})})
        ended = refusal(response.status, response.read())
        said = response.status == HTTP_STATUS[code] and ended.code == code
        run.check(said and ended.details, f"W55: {response.status}, {ended}")
        connection.close()

    refused(INVALID, "/v1/watch?target=app")
    refused(INVALID, "/v1/watch")
    for marker in ["!", "a", "-/8", "now"]:
        refused(INVALID, f"/v1/watch?target={target}&resume_marker={marker}")
    refused(INVALID, f"/v1/watch?target={target}&target={target}")
    refused(INVALID, f"/v1/watch?target={urllib.parse.quote(run.store.target('/app'), safe='')}&recursive=true")
    refused("UNIMPLEMENTED", "/v1/watch?target=%2F%3Frecursive%3Dtrue")
    refused("DEADLINE_EXCEEDED", f"/v1/watch?target={target}", {"Grpc-Timeout": "1n"})
    refused(INVALID, f"/v1/watch?target={target}", {"Grpc-Timeout": "soon"})
    for method in ["POST", "PUT", "DELETE", "HEAD"]:
        connection, response = _get(run, f"/v1/watch?target={target}", accept, method)
        run.check(response.status == 405 and response.headers["Allow"] == "GET", f"W55: {method}, {response.status}")
        connection.close()
    # A marker that both alphabets write differently comes along sooner or later.
    marker = run.watch(TREE).group()[-1].marker
    while not set(base64.b64encode(marker).decode()) & set("+/"):
        run.store.put("/app/e", "x")
        marker = run.watch(TREE).group()[-1].marker
    standard = base64.b64encode(marker).decode()
    for text in [standard, standard.rstrip("="), base64.urlsafe_b64encode(marker).decode(), base64url(marker)]:
        ways = [(f"&resume_marker={urllib.parse.quote(text, safe='')}", {})]
        if run.transport is Events:
            ways.append(("&resume_marker=bm93", {"Last-Event-ID": text}))
        for query, headers in ways:
            connection, response = _get(run, f"/v1/watch?target={target}{query}", {**accept, **headers})
            if response.status != 200:
                raise Failed(f"W55: {text}: {refusal(response.status, response.read())}")
            (change,) = next(run.transport.read(response))
            run.check(change.show() == "C(,E,d0,m)", f"W55: goes on after {text}")
            connection.close()


def w56_the_bytes_of_messages(run):
    def batch(**fields):
        return pb.ChangeBatch(changes=[pb.Change(**fields)]).SerializeToString()

    run.check(batch(element="a", continued=True) == bytes.fromhex("0a050a01612801"), "W56: C(a,E,+)")
    run.check(batch(state=pb.Change.INITIAL_STATE_SKIPPED) == bytes.fromhex("0a021002"), "W56: C(,S)")
    run.check(batch(state=pb.Change.DOES_NOT_EXIST) == bytes.fromhex("0a021001"), "W56: C(,X)")
    run.check(batch() == bytes.fromhex("0a00"), "W56: C(,E)")
    request = pb.Request(target="/app", resume_marker=b"now").SerializeToString()
    run.check(request == bytes.fromhex("0a042f61707012036e6f77"), "W56: a request")
    numbers = {field.name: field.number for field in pb.Change.DESCRIPTOR.fields}
    wanted = {"element": 1, "state": 2, "resume_marker": 4, "continued": 5, "data": 6}
    run.check(numbers == wanted, f"W56: {numbers}")
    # What the node sends, byte by byte: its markers have 29.
    run.store.fixture()
    channel = grpc.insecure_channel(run.endpoint)
    call = channel.unary_stream("/google.watcher.v1.Watcher/Watch", lambda sent: sent, lambda received: received)

    def asked(path, marker=b""):
        target = run.store.target(path).encode()
        sent = b"\x0a" + bytes([len(target)]) + target + (b"\x12" + bytes([len(marker)]) + marker if marker else b"")
        return call(sent, timeout=TIMEOUT_S)

    answer = asked("/app", b"now")
    skipped = next(answer)
    run.check(len(skipped) == 35 and skipped.startswith(bytes.fromhex("0a211002221d")), f"W56: {skipped.hex()}")
    run.store.delete("/app/a")
    gone = next(answer)
    begin = bytes.fromhex("0a240a01611001221d")
    run.check(len(gone) == 38 and gone.startswith(begin), f"W26, W56: field 6 is not there: {gone.hex()}")
    missing = next(asked("/nope"))
    run.check(len(missing) == 35 and missing.startswith(bytes.fromhex("0a211001221d")), f"W56: {missing.hex()}")
    state = next(asked("/app"))
    run.check(state[0] == 0x0A and state[2:5] == bytes.fromhex("280132"), f"W56: C(,E,d0,+) begins with {state[:5].hex()}")
    channel.close()


def w13_what_was_compacted_is_gone(run):
    marker = _marked(run).marker
    run.store.put("/app/a", "7")
    run.store.put("/app/a", "8")
    followed = run.watch(TREE)
    followed.group()
    run.store.compact()
    run.refused("FAILED_PRECONDITION", "W13", run.store.target(TREE), marker)
    wanted = ["C(,E,d0,+)", "C(a,E,8,+)", "C(b,E,2,+)", "C(d,E,Empty,+)", "C(d/x,E,3,m)"]
    run.watch(TREE).expect("W13, then without one", wanted)
    run.store.put("/app/a", "9")
    followed.expect("W13, whoever follows goes on", ["C(a,E,9,m)"])


# In this order: the last one compacts, which everybody sees.
EVERYWHERE = [
    w01_to_w05_the_state_comes_first,
    w06_to_w08_now_skips_the_state,
    w09_nothing_was_missed,
    w10_w11_what_was_missed_comes_first,
    w12_gone_and_back,
    w14_w15_markers_that_are_none,
    w19_only_a_closed_group_has_a_marker,
    w20_to_w24_groups_are_commands,
    w25_w52_slow_clients,
    w26_a_removal_has_no_data,
    w27_to_w29_directories_come_with_what_is_in_them,
    w30_to_w32_a_subtree_goes_as_one,
    w33_a_directory_goes_with_the_last,
    w34_w35_the_entity_itself_comes_and_goes,
    w36_to_w43_targets,
    w48_w49_nothing_is_late_or_lost,
    w53_who_leaves_is_forgotten,
    w54_the_form_of_json,
    w55_the_statuses_of_http,
    w56_the_bytes_of_messages,
    w13_what_was_compacted_is_gone,
]
ONLY_HTTP = [w54_the_form_of_json, w55_the_statuses_of_http]
ONLY_GRPC = [w56_the_bytes_of_messages]


class Idle:
    """A stream on which nothing happens says now and then that it is there, over HTTP."""

    def __init__(self, held, transport, endpoint, prefix):
        self.run = Run(held, transport, endpoint, endpoint, f"{prefix}-idle")
        self._begin()

    def _begin(self):
        self.stream = self.run.watch("")
        self.stream.expect("an idle stream", ["C(,X,m)"])

    def says_that_it_is_there(self):
        begin = time.monotonic()
        while self.stream.heartbeats == 0:
            self.run.held.insist(time.monotonic() - begin < TIMEOUT_S, "an idle stream says nothing")
            self.stream.listen(SILENCE_S)
            ended = self.stream.ready[0] if self.stream.ready else None
            if isinstance(ended, Ended) and ended.code == "UNAVAILABLE":
                # On a busy machine a leader may be missed for longer than a stream goes on without.
                self._begin()
            else:
                self.run.held.insist(ended is None, f"an idle stream says {ended}")
        self.run.check(True, "an idle stream says that it is there")
        self.run.leave()


def run_all(held, transport, endpoint, other, prefix):
    """Every case over one transport; those that have nothing to do with it are left out."""
    not_here = ONLY_HTTP if transport is Grpc else ONLY_GRPC
    for case in EVERYWHERE:
        if case in not_here:
            continue
        begin = time.monotonic()
        print(f"  {case.__name__}")
        run = Run(held, transport, endpoint, other, f"{prefix}-{case.__name__}")
        try:
            case(run)
            run.settle()
        finally:
            run.leave()
        print(f"      {time.monotonic() - begin:.1f} s")
