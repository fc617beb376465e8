"""What scripts/show-lossy-peers runs: proxies before the peer ports, writers, and the judge.

The proxies drop half of the bytes of peer connections for a second, which TCP never does and a broken middlebox may; or the
first byte of one large message, so that its receiver reads a length of many megabytes and waits for them. After each such
round every member must catch up by itself. At the end every acknowledged write must be there on every member, and all members
must hold the same.

usage: lossy.py CLIENT_PORTS PEER_PORTS PROXY_PORTS ROUNDS SEED    (ports separated by commas)
"""

import asyncio
import base64
import http.client
import json
import random
import sys
import threading
import time

LOSSY_SECONDS = 1.0
# What is lost: pieces of any length, what was read at once as a whole (a packet), or one byte.
PIECES, PACKETS, ONE_BYTE = "in pieces", "in packets", "one byte of one message"
PREFACE_BYTES, FRAME_HEAD_BYTES, DATA = 24, 9, 0
LARGE_BYTES = 20000
# A member that is not where the others are by then counts as stuck.
RECOVERY_SECONDS_MAX = 45
WRITERS = 6


class Proxies:
    """One proxy before each peer port. `lossy` is the set of those that lose bytes now, `how` what they lose."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.lossy, self.how = set(), PIECES
        self.dropped_bytes = 0

    async def start(self, listens, targets):
        for number, (listen, target) in enumerate(zip(listens, targets)):
            await asyncio.start_server(self.accept(number, target), "127.0.0.1", listen)

    def lose(self, numbers, how):
        self.how, self.lossy = how, set(numbers)

    def accept(self, number, target):
        async def carry(reader, writer, frames):
            try:
                while chunk := await reader.read(16384):
                    frames.feed(chunk)
                    if number in self.lossy:
                        chunk = self.damage(number, chunk, frames)
                    writer.write(chunk)
                    await writer.drain()
            except OSError:
                pass
            finally:
                writer.close()

        async def accepted(reader, writer):
            try:
                there, back = await asyncio.open_connection("127.0.0.1", target)
            except OSError:
                writer.close()
                return
            await asyncio.gather(carry(reader, back, Frames(PREFACE_BYTES)), carry(there, writer, Frames(None)))

        return accepted

    def damage(self, number, chunk, frames):
        if self.how == ONE_BYTE:
            at = frames.large_message()
            if at is None:
                return chunk
            # Its frame is shorter by one, so that what follows is read as it was sent.
            head = at - FRAME_HEAD_BYTES
            length = int.from_bytes(chunk[head : head + 3], "big") - 1
            self.lossy.discard(number)
            kept = chunk[:head] + length.to_bytes(3, "big") + chunk[head + 3 : at] + chunk[at + 1 :]
        elif self.how == PACKETS:
            kept = chunk if self.random.random() < 0.5 else b""
        else:
            kept, at = bytearray(), 0
            while at < len(chunk):
                end = at + self.random.choice((1, 4, 16, 64, 256, 1024, 4096))
                if self.random.random() < 0.5:
                    kept += chunk[at:end]
                at = end
        self.dropped_bytes += len(chunk) - len(kept)
        return bytes(kept)


class Frames:
    """Where HTTP/2's frames begin in what a caller sends, as long as nothing is lost. `skip` is what comes before the first
    one; None for what is not looked at."""

    def __init__(self, skip):
        self.skip, self.head, self.chunk, self.starts = skip, b"", b"", []

    def feed(self, chunk):
        self.chunk, self.starts = chunk, []
        if self.skip is None:
            return
        at = 0
        while at < len(chunk):
            if self.skip >= len(chunk) - at:
                self.skip -= len(chunk) - at
                return
            at, self.skip = at + self.skip, 0
            begun = at - len(self.head)
            wanted = FRAME_HEAD_BYTES - len(self.head)
            self.head += chunk[at : at + wanted]
            if len(self.head) < FRAME_HEAD_BYTES:
                return
            at += wanted
            length, kind = int.from_bytes(self.head[:3], "big"), self.head[3]
            if kind == DATA and begun >= 0:
                self.starts.append(at)
            self.skip, self.head = length, b""

    def large_message(self):
        """Where in the chunk a large message begins, with a frame of its own: gRPC's zero, then its length."""
        for at in self.starts:
            prefix = self.chunk[at : at + 5]
            if len(prefix) == 5 and prefix[0] == 0 and LARGE_BYTES <= int.from_bytes(prefix[1:], "big") < 64000:
                return at
        return None


class Node:
    """The HTTP face of one member."""

    def __init__(self, name, port):
        self.name, self.port = name, port

    def post(self, path, body, timeout=10):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request("POST", path, json.dumps(body))
            response = connection.getresponse()
            answer = json.loads(response.read())
            return answer if response.status == 200 else None
        except (OSError, ValueError, http.client.HTTPException):
            return None
        finally:
            connection.close()

    def status(self):
        return self.post("/v3/maintenance/status", {}, timeout=3) or {}

    def applied(self):
        return int(self.status().get("raftAppliedIndex", 0))

    def leads(self):
        status = self.status()
        return bool(status) and status.get("leader") == status.get("header", {}).get("member_id")

    def get(self, key):
        answer = self.post("/v3/kv/range", {"key": encoded(key)})
        return None if answer is None else [base64.b64decode(pair["value"]).decode() for pair in answer.get("kvs", [])]


def encoded(text):
    return base64.b64encode(text.encode()).decode()


class Writers:
    """Puts through every member all the time, a key each. Remembers what was acknowledged."""

    def __init__(self, nodes, seed):
        self.nodes, self.seed = nodes, seed
        self.acknowledged, self.unknown, self.over = {}, 0, False
        # Large ones take several frames.
        self.sizes = (1, 100, 1000, 50000)
        self.lock = threading.Lock()
        self.threads = [threading.Thread(target=self.write, args=(number,), daemon=True) for number in range(WRITERS)]

    def start(self):
        for thread in self.threads:
            thread.start()

    def stop(self):
        self.over = True
        for thread in self.threads:
            thread.join()

    def write(self, number):
        draw, node, count = random.Random(f"{self.seed}/{number}"), self.nodes[number % len(self.nodes)], 0
        while not self.over:
            count += 1
            key = f"lossy/{number}/{count}"
            value = f"{key}=" + "v" * draw.choice(self.sizes)
            done = node.post("/v3/kv/put", {"key": encoded(key), "value": encoded(value)})
            with self.lock:
                if done is None:
                    self.unknown += 1
                else:
                    self.acknowledged[key] = value
            # A member that answers nothing is not asked without end.
            time.sleep(0.02 if done else 0.3)


def caught_up(nodes):
    """Whether every member takes a write now, and has applied what the furthest one had applied before."""
    pair = {"key": encoded("lossy/probe"), "value": encoded("probe")}
    if any(node.post("/v3/kv/put", pair, timeout=3) is None for node in nodes):
        return False
    furthest = max(node.applied() for node in nodes)
    return furthest > 0 and all(node.applied() >= furthest for node in nodes)


def wait(condition, seconds):
    """How long it took; None if it did not come true in time."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > seconds:
            return None
        time.sleep(0.1)
    return time.monotonic() - began


def judge(nodes, writers):
    bad = []
    for node in nodes:
        pairs, wrong = 0, 0
        for key, value in writers.acknowledged.items():
            pairs += 1
            if node.get(key) != [value]:
                wrong += 1
        if wrong:
            bad.append(f"{node.name} lacks, or has otherwise, {wrong} of {pairs} acknowledged writes")
    hashes = {node.name: (node.post("/v3/maintenance/hashkv", {}) or {}).get("hash") for node in nodes}
    if None in hashes.values() or len(set(hashes.values())) != 1:
        bad.append(f"the members differ: {hashes}")
    return bad


def show(nodes, proxies, rounds, seed):
    writers, bad = Writers(nodes, seed), []
    if wait(lambda: caught_up(nodes), 60) is None:
        return ["the cluster does not serve"]
    writers.start()
    draw = random.Random(seed)
    for number in range(1, rounds + 1):
        leaders = [at for at, node in enumerate(nodes) if node.leads()]
        followers = [at for at in range(len(nodes)) if at not in leaders]
        how = (PIECES, PACKETS, ONE_BYTE)[number % 3]
        # Now and then it hits all of them.
        struck = list(range(len(nodes))) if number % 4 == 0 else [draw.choice(followers or [0])]
        before = len(writers.acknowledged)
        proxies.lose(struck, how)
        if how == ONE_BYTE:
            wait(lambda: not proxies.lossy, LOSSY_SECONDS * 5)
            # So that megabytes do not come soon.
            writers.sizes = (1, 100)
        else:
            time.sleep(LOSSY_SECONDS)
        proxies.lose([], how)
        names = ", ".join(nodes[at].name for at in struck)
        what = f"{names} lost {how}" if how == ONE_BYTE else f"{names} lost half of the bytes for a second, {how}"
        took = wait(lambda: caught_up(nodes), RECOVERY_SECONDS_MAX)
        writers.sizes = (1, 100, 1000, 50000)
        writes = len(writers.acknowledged) - before
        if took is None:
            where = ", ".join(f"{node.name} {node.applied()}" for node in nodes)
            print(f"round {number}: {what}: stuck; applied: {where}", flush=True)
            bad.append(f"round {number}: a member is stuck {RECOVERY_SECONDS_MAX} s after the connections are whole again")
            break
        print(
            f"round {number}: {what}: all caught up {took:.1f} s later, {writes} writes acknowledged meanwhile",
            flush=True,
        )
    writers.stop()
    print(
        f"{proxies.dropped_bytes} bytes dropped; {len(writers.acknowledged)} writes acknowledged,"
        f" {writers.unknown} without an answer",
        flush=True,
    )
    if not bad:
        wait(lambda: caught_up(nodes), RECOVERY_SECONDS_MAX)
        bad = judge(nodes, writers)
    return bad


def main():
    clients, peers, listens = ([int(port) for port in argument.split(",")] for argument in sys.argv[1:4])
    rounds, seed = int(sys.argv[4]), sys.argv[5]
    nodes = [Node(f"node{number}", port) for number, port in enumerate(clients, 1)]
    proxies, loop, ready = Proxies(seed), asyncio.new_event_loop(), threading.Event()

    def serve():
        loop.run_until_complete(proxies.start(listens, peers))
        ready.set()
        loop.run_forever()

    threading.Thread(target=serve, daemon=True).start()
    if not ready.wait(10):
        sys.exit("the proxies cannot listen")
    # Whoever started this starts the cluster now, and says so.
    print("ready", flush=True)
    sys.stdin.readline()
    bad = show(nodes, proxies, rounds, seed)
    for what in bad:
        print(f"verdict: bad: {what}")
    if not bad:
        print("verdict: good")
    sys.exit(1 if bad else 0)


main()
