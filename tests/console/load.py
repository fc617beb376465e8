"""Measures how the console keeps up with a large and busy store. load.py PORT [SECONDS]

Fills the store with 100,000 keys and 1,000 services, changes it about a thousand times a second, and prints for each page the
times between frames, milliseconds, and how many commands came. Fails if one frame in a hundred takes more than 50 ms.
"""

import http.client
import json
import sys
import threading
import time
from base64 import b64encode

from browser import Browser, program

PORT = int(sys.argv[1])
SECONDS = int(sys.argv[2]) if len(sys.argv) > 2 else 8
KEYS, SERVICES, WRITERS, CHANGES_PER_S, FRAME_MS_MAX = 100_000, 1_000, 8, 1_000, 50
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


def key(number):
    return f"load/{number % 10}/{number:06}" if number % 2 else f"flat-{number:06}"


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
        self.done = 0
        self.ends = threading.Event()
        self.threads = [threading.Thread(target=self.write, args=(number,), daemon=True) for number in range(WRITERS)]
        for thread in self.threads:
            thread.start()

    def write(self, number):
        client = Client()
        began, count = time.monotonic(), 0
        while not self.ends.is_set():
            count += 1
            change = count * WRITERS + number
            if change % 5:
                client.ask(
                    "POST", "/v3/kv/put", {"key": encoded(key(change * 7919 % KEYS)), "value": encoded(str(change))}
                )
            else:
                client.ask(
                    "PUT",
                    "/v1/catalog/register",
                    service(change * 31 % SERVICES, ("passing", "warning", "critical")[change % 3]),
                )
            self.done += 1
            time.sleep(max(0, began + count * WRITERS / CHANGES_PER_S - time.monotonic()))


def main():
    print("filling", flush=True)
    fill()
    browser = Browser(program())
    writers = Writers()
    slow = []
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
            before = writers.done
            frames = sorted(browser.run(FRAMES % (SECONDS * 1000)))
            rate = (writers.done - before) / SECONDS
            p99 = frames[len(frames) * 99 // 100]
            print(
                f"{page:28} {rate:6.0f} changes/s  {len(frames):5} frames  median {frames[len(frames) // 2]:5.1f}  p99 {p99:5.1f}  longest {frames[-1]:6.1f} ms",
                flush=True,
            )
            if p99 > FRAME_MS_MAX:
                slow.append(page)
    finally:
        writers.ends.set()
        browser.close()
    if browser.problems or slow:
        sys.exit(f"too slow: {slow}; errors in the page: {browser.problems}")


if __name__ == "__main__":
    main()
