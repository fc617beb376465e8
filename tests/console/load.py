"""Measures how the console keeps up with a large and busy store. load.py PROGRAM PORT [SECONDS]

Fills the store with 100,000 keys and 1,000 services, changes it about a thousand times a second, and prints for each page the
times between frames, milliseconds, and how many commands came. Fails if one frame in a hundred takes more than 50 ms, or if the
load did not keep its rate. Keys are put by PROGRAM, headwater: a generator in Python would take the processor time of the browser.
"""

import http.client
import json
import subprocess
import sys
import threading
import time
from base64 import b64encode

from browser import Browser, program

PROGRAM, PORT = sys.argv[1], int(sys.argv[2])
SECONDS = int(sys.argv[3]) if len(sys.argv) > 3 else 8
KEYS, SERVICES, FRAME_MS_MAX = 100_000, 1_000, 50
# Changes a second below which a page was not under the load.
RATE_MIN = 900
# Changes a second of services; number of keys with a prefix, and changes of them a second. One page opens `load/1/`.
SERVICES_PER_S = 200
KEYS_PER_S = {"flat-": (KEYS // 2, 400), "load/1/": (KEYS // 20, 40), "load/3/": (KEYS // 20, 360)}
FRAMES = """new Promise(done => {
    const frames = []
    let last = performance.now()
    const end = last + %d
    const next = now => {
        frames.push(now - last)
        last = now
        now < end ? requestAnimationFrame(next) : done(frames)
    }
    requestAnimationFrame(next)
})"""


def encoded(text):
    return b64encode(text.encode()).decode()


class Client:
    def __init__(self):
        self.connection = http.client.HTTPConnection("127.0.0.1", PORT, timeout=30)

    def ask(self, method, path, body):
        self.connection.request(method, path, json.dumps(body))
        response = self.connection.getresponse()
        text = response.read()
        if response.status != 200:
            raise RuntimeError(f"{path}: {response.status} {text[:300]}")
        return text


def key(number):
    """One half of the keys has no branch, the other one ten."""
    half = KEYS // 2
    return f"flat-{number:06}" if number < half else f"load/{number % 10}/{(number - half) // 10:06}"


def index(client):
    """The log index that the store has reached."""
    return int(json.loads(client.ask("POST", "/v1/store/read", {"targets": ["/kv/none"]}))["index"])


def fill():
    client = Client()
    for begin in range(0, KEYS, 100):
        puts = [
            {"request_put": {"key": encoded(key(number)), "value": encoded("x" * 64)}}
            for number in range(begin, begin + 100)
        ]
        client.ask("POST", "/v3/kv/txn", {"success": puts})
    for number in range(SERVICES):
        client.ask("PUT", "/v1/catalog/register", service(number, "passing"))


def service(number, status):
    name = f"service-{number:04}"
    return {
        "Node": f"host{number % 50}",
        "Address": "10.0.0.1",
        "Service": {"Service": name, "Port": 80},
        "Checks": [
            {"Node": f"host{number % 50}", "CheckID": name, "Name": "HTTP", "Status": status, "ServiceID": name}
        ],
    }


class Writers:
    """Changes keys and services, four to one, at a rate."""

    def __init__(self):
        self.ends = threading.Event()
        self.services = threading.Thread(target=self.write_services, daemon=True)
        self.services.start()
        self.keys = [self.write_keys(prefix, *load) for prefix, load in KEYS_PER_S.items()]

    def write_keys(self, prefix, keys, rate):
        size = len(f"{prefix}{0:06}")
        options = f"--rate {rate} --clients 4 --key-size {size} --keys {keys} --val-size 16 --duration 10m --quiet"
        command = [PROGRAM, "bench", "put", "--endpoints", f"127.0.0.1:{PORT}", "--prefix", prefix, *options.split()]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def write_services(self):
        client = Client()
        began, count = time.monotonic(), 0
        while not self.ends.is_set():
            count += 1
            status = ("passing", "warning", "critical")[count % 3]
            client.ask("PUT", "/v1/catalog/register", service(count * 31 % SERVICES, status))
            time.sleep(max(0, began + count / SERVICES_PER_S - time.monotonic()))

    def check(self):
        """Fails if a writer has ended by itself."""
        if not self.services.is_alive() or any(generator.poll() is not None for generator in self.keys):
            raise RuntimeError("a writer has ended: the store was not under load")

    def end(self):
        self.ends.set()
        for generator in self.keys:
            generator.kill()
            generator.wait()


def main():
    print("filling", flush=True)
    fill()
    browser = Browser(program())
    client = Client()
    slow, idle = [], []
    writers = Writers()
    try:
        browser.size(1280, 800)
        for page, ready in (
            ("keys", "flat-"),
            ("keys/load/1/000001", "000001"),
            ("services/service-0001", "service-0001"),
            ("history", "kv/"),
            ("cluster", "serves"),
        ):
            browser.open(f"http://127.0.0.1:{PORT}/ui/#/{page}")
            browser.shows(ready, "#main", 60)
            time.sleep(2)
            before, began = index(client), time.monotonic()
            frames = sorted(browser.run(FRAMES % (SECONDS * 1000)))
            rate = (index(client) - before) / (time.monotonic() - began)
            p99 = frames[len(frames) * 99 // 100]
            print(
                f"{page:28} {rate:6.0f} changes/s  {len(frames):5} frames  median {frames[len(frames) // 2]:5.1f}  p99 {p99:5.1f}  longest {frames[-1]:6.1f} ms",
                flush=True,
            )
            writers.check()
            if p99 > FRAME_MS_MAX:
                slow.append(page)
            if rate < RATE_MIN:
                idle.append(page)
    finally:
        writers.end()
        browser.close()
    if browser.problems or slow or idle:
        sys.exit(f"too slow: {slow}; fewer than {RATE_MIN} changes a second: {idle}; errors in the page: {browser.problems}")


if __name__ == "__main__":
    main()
