"""python-consul by TLS, unchanged: scripts/test-tls runs it.

usage: tls.py HOST:PORT CERTIFICATES OTHER-CERTIFICATES

With the certificates of the cluster it is served. Without one, with another authority's, or in plain text it is not.
"""

import sys

import consul
import requests


def main():
    address, certs, other = sys.argv[1:]
    host, port = address.rsplit(":", 1)

    def client(ca, pair, scheme="https"):
        cert = pair and (f"{pair}/operator.crt", f"{pair}/operator.key")
        made = consul.Consul(host=host, port=int(port), scheme=scheme, verify=f"{ca}/client-ca.crt")
        made.http.session.cert = cert
        return made

    good = client(certs, certs)
    assert good.kv.put("tls/greeting", "hello")
    _, found = good.kv.get("tls/greeting")
    assert found["Value"] == b"hello", found
    good.catalog.register("by-tls", "10.0.0.9", service={"Service": "secure", "Port": 443})
    _, nodes = good.catalog.service("secure")
    assert [node["Address"] for node in nodes] == ["10.0.0.9"], nodes
    print("    keys and the catalog, with a certificate")
    for what, bad in [
        ("no certificate", client(certs, None)),
        ("another authority's certificate", client(certs, other)),
        ("trust in another authority", client(other, certs)),
        ("plain text", client(certs, certs, scheme="http")),
    ]:
        try:
            found = bad.kv.get("tls/greeting")
        except requests.exceptions.ConnectionError as error:
            print(f"    refused: {what}: {str(error)[:100]}")
        else:
            raise SystemExit(f"{what} was served: {found}")


main()
