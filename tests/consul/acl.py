"""Consul's access control lists: by plain HTTP, and with tokens of python-consul, unchanged.

usage: acl.py HOST:PORT...

The members must run with acl.enabled and acl.default-policy = deny, and without a bootstrap. Exits with 1 and a traceback at the
first thing that is not as Consul's documents say.
"""

import json
import sys
import time
import urllib.error
import urllib.request

import consul


def ask(address, method, path, body=None, token=None):
    """Status, headers, and the answer: JSON where it is JSON."""
    request = urllib.request.Request(f"http://{address}{path}", method=method)
    if token:
        request.add_header("X-Consul-Token", token)
    if body is not None:
        request.data = body if isinstance(body, bytes) else json.dumps(body).encode()
    try:
        with urllib.request.urlopen(request, timeout=60) as answer:
            status, headers, text = answer.status, answer.headers, answer.read().decode()
    except urllib.error.HTTPError as error:
        status, headers, text = error.code, error.headers, error.read().decode()
    try:
        return status, headers, json.loads(text)
    except ValueError:
        return status, headers, text


def done(address, method, path, body=None, token=None):
    status, _, answer = ask(address, method, path, body, token)
    assert status == 200, (method, path, status, answer)
    return answer


def client(address, token=None):
    host, port = address.rsplit(":", 1)
    return consul.Consul(host=host, port=int(port), token=token)


def bootstrap(first, last):
    # A new cluster rises to its members' version a moment after its start.
    deadline = time.monotonic() + 60
    while True:
        status, _, made = ask(first, "PUT", "/v1/acl/bootstrap")
        if status == 200:
            break
        assert status == 409 and time.monotonic() < deadline, (status, made)
        time.sleep(0.2)
    root = made["SecretID"]
    status, _, text = ask(last, "PUT", "/v1/acl/bootstrap")
    assert status == 403 and text.startswith("Permission denied: ACL bootstrap no longer allowed"), text
    assert done(last, "GET", "/v1/acl/token/self", token=root)["Policies"][0]["Name"] == "global-management"
    return root


def policy_and_token(first, last, root):
    rules = """
key_prefix "app/" { policy = "write" }
key "app/secret" { policy = "deny" }
node_prefix "" { policy = "read" }
service "web" { policy = "write" }
"""
    policy = done(first, "PUT", "/v1/acl/policy", {"Name": "app", "Rules": rules}, root)
    assert done(last, "GET", "/v1/acl/policy/name/app", token=root)["ID"] == policy["ID"]
    status, _, text = ask(first, "PUT", "/v1/acl/policy", {"Name": "bad", "Rules": 'keys "a" {}'}, root)
    assert status == 400 and "line 1" in text, (status, text)
    return done(last, "PUT", "/v1/acl/token", {"Description": "app", "Policies": [{"Name": "app"}]}, root)


def with_python_consul(first, last, root, token):
    for address in (first, last):
        app, anonymous = client(address, token["SecretID"]), client(address)
        assert app.kv.put("app/a", "1") is True
        assert app.kv.get("app/a")[1]["Value"] == b"1"
        for denied in (
            lambda: app.kv.put("other", "1"),
            lambda: app.kv.get("app/secret"),
            lambda: anonymous.kv.get("app/a"),
            lambda: client(address, "00000000-0000-4000-8000-000000000000").kv.get("app/a"),
        ):
            try:
                denied()
            except consul.ACLPermissionDenied:
                pass
            else:
                raise AssertionError("it was not denied")
        # Legacy endpoints went with Consul 1.11.
        try:
            client(address, root).acl.list()
        except consul.ConsulException as error:
            assert "410" in str(error), error
        else:
            raise AssertionError("the lists before 1.4 answered")


def filtered_catalog(first, last, root, token):
    for name in ("web", "db"):
        done(first, "PUT", "/v1/catalog/register",
             {"Node": "n1", "Address": "10.0.0.1", "Service": {"Service": name, "Port": 80}}, root)
    for address in (first, last):
        _, headers, services = ask(address, "GET", "/v1/catalog/services", token=token["SecretID"])
        assert services == {"web": []}, services
        assert headers["X-Consul-Results-Filtered-By-ACLs"] == "true"
        assert headers["X-Consul-Default-ACL-Policy"] == "deny"
        _, headers, services = ask(address, "GET", "/v1/catalog/services")
        assert services == {} and "X-Consul-Results-Filtered-By-ACLs" not in headers, services
        _, nodes = client(address, token["SecretID"]).health.service("db")
        assert nodes == [], nodes


def expiry(first, last, root):
    made = done(first, "PUT", "/v1/acl/token", {"Policies": [{"Name": "app"}], "ExpirationTTL": "2s"}, root)
    assert client(last, made["SecretID"]).kv.put("app/b", "1") is True
    deadline = time.monotonic() + 60
    while True:
        status, _, text = ask(last, "GET", "/v1/kv/app/b", token=made["SecretID"])
        if status == 403:
            assert text == "ACL not found", text
            break
        assert time.monotonic() < deadline, "the token did not end"
        time.sleep(0.1)


def removed(first, last, root, token):
    assert done(first, "DELETE", f"/v1/acl/token/{token['AccessorID']}", token=root) is True
    status, _, text = ask(first, "GET", "/v1/kv/app/a", token=token["SecretID"])
    assert (status, text) == (403, "ACL not found"), (status, text)


def main(addresses):
    first, last = addresses[0], addresses[-1]
    root = bootstrap(first, last)
    token = policy_and_token(first, last, root)
    with_python_consul(first, last, root, token)
    filtered_catalog(first, last, root, token)
    expiry(first, last, root)
    removed(first, last, root, token)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    main(sys.argv[1:])
