"""Measures what open consoles cost the writes of others. crowd.py PROGRAM PORT [CONSOLES] [ROUNDS]

Holds the requests that CONSOLES (20) pages of the console hold at a node: a fifth each for Cluster, Keys, Services, Resources
and History. Beside them a generator puts keys, at 1,000 a second and as fast as it can; each round is run without and with the
consoles, in turn. Prints the medians of the ratios. Fill the store first, for example with load.py.
"""

import http.client
import json
import statistics
import subprocess
import sys
import threading

PROGRAM, PORT = sys.argv[1], int(sys.argv[2])
CONSOLES = int(sys.argv[3]) if len(sys.argv) > 3 else 20
ROUNDS = int(sys.argv[4]) if len(sys.argv) > 4 else 5
LOADS = {
    "1,000 puts a second": ["--clients", "64", "--rate", "1000"],
    "as many puts as possible": ["--clients", "64"],
}
SECONDS = 6
# Seconds between two readings of the Cluster page.
POLL_SECONDS = 2


def history(connection):
    connection.request("POST", "/v1/store/read", json.dumps({"targets": ["/kv/~/~/crowd?children=false"]}))
    now = json.loads(connection.getresponse().read())["index"]
    request = {"paths_only": True, "live": True, "from": {"index": now}}
    connection.request("POST", "/v1/store/history", json.dumps(request))


def watch(target):
    return lambda connection: connection.request("GET", f"/v1/watch?target={target}")


def poll(connection, ends):
    while not ends.wait(POLL_SECONDS):
        connection.request("GET", "/metrics")
        connection.getresponse().read()
        connection.request("POST", "/v3/cluster/member/status", "{}")
        connection.getresponse().read()


PAGES = [poll, watch("/kv/bench"), watch("/services?recursive%3Dtrue"), watch("/resources?recursive%3Dtrue"), history]


class Crowd:
    """Open consoles, until it ends."""

    def __init__(self):
        self.ends = threading.Event()
        self.connections = []
        self.bytes = 0
        self.threads = [threading.Thread(target=self.hold, args=(PAGES[at % 5],), daemon=True) for at in range(CONSOLES)]
        for thread in self.threads:
            thread.start()

    def hold(self, page):
        connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)
        self.connections.append(connection)
        if page is poll:
            return poll(connection, self.ends)
        page(connection)
        response = connection.getresponse()
        if response.status != 200:
            raise RuntimeError(response.read())
        while not self.ends.is_set():
            try:
                read = response.read1(1 << 16)
            except TimeoutError:
                continue
            if not read:
                raise RuntimeError("the stream ended")
            self.bytes += len(read)

    def end(self):
        # A stream without changes is left alone: it ends with the process.
        self.ends.set()
        for connection in self.connections:
            if connection.sock:
                connection.sock.settimeout(0.1)


def load(arguments):
    command = [PROGRAM, "bench", "put", "--endpoints", f"127.0.0.1:{PORT}", "--quiet", "--allow-errors", "-w", "json"]
    output = subprocess.run(
        command + ["--duration", f"{SECONDS}s", "--keys", "100000", *arguments], check=True, capture_output=True
    )
    return json.loads(output.stdout)


def main():
    for name, arguments in LOADS.items():
        ratios, taken, failed = [], 0, 0
        for number in range(ROUNDS):
            rates = {}
            for with_crowd in (number % 2 == 0, number % 2 == 1):
                crowd = Crowd() if with_crowd else None
                report = load(arguments)
                rates[with_crowd] = report["operations_per_second"]
                failed += report["failed"]
                if crowd:
                    crowd.end()
                    taken += crowd.bytes
            ratios.append(rates[True] / rates[False])
        print(
            f"{name}: with {CONSOLES} consoles {statistics.median(ratios):.3f} of without"
            f" ({min(ratios):.3f} to {max(ratios):.3f}), {failed} puts failed;"
            f" the consoles took {taken // ROUNDS // SECONDS >> 10} KiB a second",
            flush=True,
        )


if __name__ == "__main__":
    main()
