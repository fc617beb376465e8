"""Streams of changes over three transports: gRPC, lines of JSON, server-sent events.

Owns how a stream is opened and what its messages are as changes. Whatever the transport, a stream yields the same changes and ends
with the same codes; what only a transport has is checked here: statuses of HTTP, the ids of events.
"""

import base64
import dataclasses
import http.client
import json
import queue
import socket
import threading
import time
import urllib.parse

import grpc
from google.protobuf import empty_pb2

from etcd import kv_pb2
from google.watcher.v1 import watch_pb2 as pb
from google.watcher.v1 import watch_pb2_grpc
from held import Failed
from view import View

# Longer than anything here may take on a busy machine; only a defect runs into it.
TIMEOUT_S = 60
# How long a stream is listened to before it counts as silent.
SILENCE_S = 0.3
# What a client that reads slowly lets the system keep for it, bytes; the system may take twice as much.
SLOW_BUFFER_BYTES = 16 * 1024

STATES = {"EXISTS": "E", "DOES_NOT_EXIST": "X", "INITIAL_STATE_SKIPPED": "S", "ERROR": "R"}
# W55. Codes that are not here have no business at the end of a stream.
HTTP_STATUS = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "RESOURCE_EXHAUSTED": 429,
    "UNIMPLEMENTED": 501,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
# What passes by itself: whoever hears it tries again.
PASSING = {"UNAVAILABLE", "RESOURCE_EXHAUSTED"}
CODES = {code.value[0]: code.name for code in grpc.StatusCode}


class Ended(Exception):
    """A stream is over, with a code of gRPC; CUT is the end of a connection without a word."""

    def __init__(self, code, details):
        super().__init__(f"{code} ({details})")
        self.code = code
        self.details = details


@dataclasses.dataclass
class Change:
    element: str
    state: str
    marker: bytes
    continued: bool
    # The value of a key, "Empty", or the name of another message; None if there is no data.
    data: str | None
    # Where a key is in the order of all changes of keys.
    revision: int = 0
    # Which message of the stream it came in.
    message: int = 0

    def show(self):
        """In the notation of the cases."""
        data = "" if self.data is None else f",{self.data}"
        return f"C({self.element},{self.state}{data}{',+' if self.continued else ',m'})"


def show(group):
    return [change.show() for change in group]


def of_message(batch):
    return [of_pb(change) for change in batch.changes]


def of_pb(change):
    data, revision = None, 0
    if change.HasField("data"):
        data = change.data.type_url.rsplit(".", 1)[-1]
        if change.data.Is(kv_pb2.KeyValue.DESCRIPTOR):
            kv = kv_pb2.KeyValue()
            change.data.Unpack(kv)
            data, revision = kv.value.decode(), kv.mod_revision
        elif not change.data.Is(empty_pb2.Empty.DESCRIPTOR) and data == "Empty":
            raise Failed(f"another Empty than that of protobuf: {change}")
    state = STATES[pb.Change.State.Name(change.state)]
    return Change(change.element, state, change.resume_marker, change.continued, data, revision)


def of_json(change):
    unknown = set(change) - {"element", "state", "resumeMarker", "continued", "data"}
    # Defaults are left out (W54).
    defaults = [change.get("element") == "", change.get("state") == "EXISTS", change.get("continued") is False]
    if unknown or any(defaults) or change.get("resumeMarker") == "":
        raise Failed(f"this is no change in proto-JSON: {change}")
    data, revision = None, 0
    if "data" in change:
        kind = change["data"]["@type"].removeprefix("type.googleapis.com/")
        data = kind.rsplit(".", 1)[-1]
        if kind == "mvccpb.KeyValue":
            data = base64.b64decode(change["data"].get("value", "")).decode()
            revision = int(change["data"]["modRevision"])
    marker = base64.b64decode(change.get("resumeMarker", ""), validate=True)
    state = STATES[change.get("state", "EXISTS")]
    return Change(change.get("element", ""), state, marker, change.get("continued", False), data, revision)


class GrpcSource:
    """The messages of one call."""

    def __init__(self, stub, target, marker, timeout_s):
        self.call = stub.Watch(pb.Request(target=target, resume_marker=marker), timeout=timeout_s)

    def messages(self):
        try:
            for batch in self.call:
                yield of_message(batch)
        except grpc.RpcError as error:
            raise Ended(error.code().name, error.details()) from None
        raise Ended("OK", "the end of the call")

    def cancel(self):
        self.call.cancel()


class Grpc:
    """A client of gRPC."""

    name = "gRPC"

    def __init__(self, endpoint, slow=False):
        self.endpoint = endpoint
        # Without these, the library takes more and more of what is not read.
        options = [("grpc.http2.bdp_probe", 0), ("grpc.http2.lookahead_bytes", SLOW_BUFFER_BYTES)] if slow else []
        self.channel = grpc.insecure_channel(endpoint, options=options + [("grpc.use_local_subchannel_pool", 1)])
        self.stub = watch_pb2_grpc.WatcherStub(self.channel)

    def open(self, target, marker=b"", timeout_s=None):
        return GrpcSource(self.stub, target, marker, timeout_s)


class HttpSource:
    """The pieces of one answer."""

    def __init__(self, client, path, headers):
        self.client = client
        self.path = path
        self.headers = headers
        self.socket = None

    def messages(self):
        try:
            response = self._begin()
            yield from self.client.read(response)
        except (OSError, http.client.HTTPException, ValueError) as error:
            # ValueError is what reading from a connection that was closed meanwhile comes to.
            if isinstance(error, json.JSONDecodeError):
                raise Failed(f"this is no JSON: {error.doc}") from None
            raise Ended("CUT", str(error)) from None
        raise Ended("CUT", "the end of the answer")

    def _begin(self):
        host, port = self.client.endpoint.rsplit(":", 1)
        self.socket = socket.socket()
        if self.client.slow:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SLOW_BUFFER_BYTES)
        self.socket.connect((host, int(port)))
        connection = http.client.HTTPConnection(host, int(port))
        connection.sock = self.socket
        connection.request("GET", self.path, headers=self.headers)
        response = connection.getresponse()
        if response.status != 200:
            refused = refusal(response.status, response.read())
            if isinstance(self.client, Events) and refused.code in PASSING:
                raise Failed(f"a browser never comes again after an error of HTTP: {refused}")
            raise refused
        if response.headers["content-type"] != self.client.content_type:
            raise Failed(f"an answer of the type {response.headers['content-type']}")
        return response

    def cancel(self):
        if self.socket is not None:
            try:
                self.socket.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def refusal(status, body):
    """What an answer other than 200 says."""
    said = json.loads(body)
    code = CODES[said["code"]]
    if HTTP_STATUS.get(code) != status:
        raise Failed(f"W55: {code} has the status {status}")
    return Ended(code, said["message"])


def base64url(marker):
    return base64.urlsafe_b64encode(marker).decode().rstrip("=")


class Lines:
    """A client of the stream of JSON."""

    name = "lines"
    content_type = "application/json"

    def __init__(self, endpoint, slow=False):
        self.endpoint = endpoint
        self.slow = slow

    def open(self, target, marker=b"", timeout_s=None):
        query = {"target": target}
        if marker:
            query["resume_marker"] = base64.b64encode(marker).decode()
        headers = {} if timeout_s is None else {"Grpc-Timeout": f"{int(timeout_s * 1000)}m"}
        return HttpSource(self, f"/v1/watch?{urllib.parse.urlencode(query)}", headers)

    @staticmethod
    def read(response):
        while line := response.readline():
            said = json.loads(line)
            if error := said.get("error"):
                code = CODES[error["grpc_code"]]
                if HTTP_STATUS.get(code) != error["http_code"]:
                    raise Failed(f"W55: {error}")
                raise Ended(code, error["message"])
            yield [of_json(change) for change in said["result"].get("changes", [])]


class Events:
    """As a browser's EventSource: a marker is where it was."""

    name = "events"
    content_type = "text/event-stream"

    def __init__(self, endpoint, slow=False):
        self.endpoint = endpoint
        self.slow = slow

    def open(self, target, marker=b"", timeout_s=None):
        query = {"target": target}
        headers = {"Accept": "text/event-stream"}
        if marker == b"now":
            query["resume_marker"] = "bm93"
        elif marker:
            # What counts is where it was, not where it once began.
            query["resume_marker"] = "bm93"
            headers["Last-Event-ID"] = base64url(marker)
        if timeout_s is not None:
            headers["Grpc-Timeout"] = f"{int(timeout_s * 1000)}m"
        return HttpSource(self, f"/v1/watch?{urllib.parse.urlencode(query)}", headers)

    @staticmethod
    def read(response):
        fields, begun = {}, False
        while line := response.readline():
            line = line.decode().rstrip("\n")
            if line.startswith(":"):
                fields[":"] = line
            elif line:
                name, value = line.split(": ", 1)
                if name in fields:
                    raise Failed(f"an event with {name} twice")
                fields[name] = value
            elif not begun:
                if set(fields) != {"retry"}:
                    raise Failed(f"a stream of events begins with {fields}")
                fields, begun = {}, True
            else:
                yield from Events.event(fields)
                fields = {}

    @staticmethod
    def event(fields):
        if fields.get("event") == "end":
            said = json.loads(fields["data"])
            raise Ended(CODES[said["code"]], said["message"])
        if set(fields) == {":"}:
            yield []
            return
        changes = [of_json(change) for change in json.loads(fields["data"]).get("changes", [])]
        markers = [change.marker for change in changes if change.marker]
        wanted = {"data", "id"} if markers else {"data"}
        if set(fields) != wanted or (markers and fields["id"] != base64url(markers[-1])):
            raise Failed(f"an event whose id is not the marker of its last closed group: {fields}")
        yield changes


TRANSPORTS = {client.name: client for client in (Grpc, Lines, Events)}


class Stream:
    """A stream, flattened, read by a client that keeps to the rules (`view`).

    `ahead` bounds how many messages are taken before somebody wants them.
    """

    def __init__(self, check, source, view=None, begins="state", ahead=0):
        self.check = check
        self.source = source
        self.view = view or View()
        self.view.begin(begins)
        self.taken = queue.Queue(maxsize=ahead)
        self.ready = []
        # Messages that said something, and those that only said that the stream is there.
        self.messages = 0
        self.heartbeats = 0
        self.is_over = threading.Event()
        threading.Thread(target=self._collect, daemon=True).start()

    def _put(self, piece):
        while True:
            try:
                return self.taken.put(piece, timeout=1)
            except queue.Full:
                if self.is_over.is_set():
                    return

    def _collect(self):
        try:
            for changes in self.source.messages():
                self._put(changes)
        # Whatever it is, whoever reads has to know.
        except BaseException as error:
            self._put(error)

    def _pull(self, timeout_s):
        piece = self.taken.get(timeout=timeout_s)
        if isinstance(piece, BaseException):
            # For who asks again.
            self.ready.append(piece)
        elif piece:
            self.messages += 1
            for change in piece:
                change.message = self.messages
            self.ready.extend(piece)
        else:
            self.heartbeats += 1

    def next(self, timeout_s=TIMEOUT_S):
        """The next change; how the stream ended, as an exception."""
        give_up = time.monotonic() + timeout_s
        while not self.ready:
            try:
                self._pull(max(0, give_up - time.monotonic()))
            except queue.Empty:
                raise Failed(f"nothing came for {timeout_s} s; the view is {self.view.elements}") from None
        if isinstance(self.ready[0], BaseException):
            raise self.ready[0]
        change = self.ready.pop(0)
        self.view.take(change)
        return change

    def group(self):
        group = [self.next()]
        while group[-1].continued:
            group.append(self.next())
        return group

    def expect(self, what, wanted):
        group = show(self.group())
        self.check(group == wanted, f"{what}: {' '.join(group)}" + ("" if group == wanted else f", not {wanted}"))
        return self.view.marker

    def listen(self, how_long_s):
        """Takes what comes, without looking at it, until something says something."""
        until = time.monotonic() + how_long_s
        while not self.ready and (left := until - time.monotonic()) > 0:
            try:
                self._pull(left)
            except queue.Empty:
                break

    def silent(self, what):
        self.listen(SILENCE_S)
        self.check(not self.ready, f"{what}: then silence" + (f", but {self.ready}" if self.ready else ""))

    def settle(self, what, tree):
        """Reads until what was told comes to what is there."""
        give_up = time.monotonic() + TIMEOUT_S
        while self.view.pending or self.view.elements != tree:
            if time.monotonic() > give_up:
                break
            self.next()
        if self.view.elements != tree:
            raise Failed(f"{what}: {self.view.elements}, not {tree}")
        self.check(True, f"{what}: {len(tree)} elements as a read shows them")

    def ended(self):
        """How the stream ended; what came before does not matter."""
        try:
            while True:
                self.next()
        except Ended as ended:
            return ended

    def cancel(self):
        self.is_over.set()
        self.source.cancel()
