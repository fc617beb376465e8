"""Many TLS handshakes at once: scripts/show-handshakes runs it.

usage: handshakes.py HOST:PORT CERTIFICATES COUNT

Opens COUNT connections at once, with a good certificate. Prints how many were served, and how many ended with which error.
"""

import asyncio
import ssl
import sys

# The node gives up a handshake after five seconds; only a defect runs into this.
TIMEOUT_S = 60


async def shake(host, port, context, counts):
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(host, port, ssl=context), TIMEOUT_S)
    except (OSError, ssl.SSLError, asyncio.TimeoutError) as error:
        counts[type(error).__name__] = counts.get(type(error).__name__, 0) + 1
        return
    counts["served"] = counts.get("served", 0) + 1
    writer.close()


async def main():
    address, certs, count = sys.argv[1:]
    host, port = address.rsplit(":", 1)
    context = ssl.create_default_context(cafile=f"{certs}/client-ca.crt")
    context.load_cert_chain(f"{certs}/operator.crt", f"{certs}/operator.key")
    counts = {}
    await asyncio.gather(*(shake(host, int(port), context, counts) for _ in range(int(count))))
    print(", ".join(f"{number} {what}" for what, number in sorted(counts.items())))


asyncio.run(main())
