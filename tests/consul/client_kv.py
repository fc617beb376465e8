"""Keys, sessions, locks and transactions as python-consul uses them, unchanged.

usage: client_kv.py HOST:PORT...

Every member is asked in turn. Exits with 1 and a traceback at the first thing that is not as Consul's documents say.
"""

import base64
import sys
import threading
import time

import consul


def clients(addresses):
    return [consul.Consul(host=host, port=int(port)) for host, port in (it.rsplit(":", 1) for it in addresses)]


def keys(members):
    a, b = members[0], members[-1]
    a.kv.delete("py", recurse=True)
    index, found = b.kv.get("py/motd")
    assert found is None and int(index) >= 1, (index, found)
    assert a.kv.put("py/motd", "hello", flags=7) is True
    index, found = b.kv.get("py/motd")
    assert found["Value"] == b"hello" and found["Flags"] == 7 and found["LockIndex"] == 0, found
    assert str(found["ModifyIndex"]) == str(index), (index, found)
    assert a.kv.put("py/motd", "x", cas=0) is False
    assert a.kv.put("py/motd", "bye", cas=found["ModifyIndex"]) is True
    assert b.kv.get("py/motd")[1]["Value"] == b"bye"
    assert a.kv.put("py/empty", "") is True
    assert b.kv.get("py/empty")[1]["Value"] in (None, b"")
    assert a.kv.put("py/dir/one", "1") and a.kv.put("py/dir/two", b"\x00\xff")
    _, found = b.kv.get("py/", recurse=True)
    assert [it["Key"] for it in found] == ["py/dir/one", "py/dir/two", "py/empty", "py/motd"], found
    assert found[1]["Value"] == b"\x00\xff"
    _, found = b.kv.get("py/", keys=True, separator="/")
    assert found == ["py/dir/", "py/empty", "py/motd"], found
    assert a.kv.delete("py/motd", cas=1) is False
    assert a.kv.delete("py/motd") is True and a.kv.delete("py/motd") is True
    assert b.kv.get("py/motd")[1] is None


def blocking(members):
    a, b = members[0], members[-1]
    a.kv.put("py/wait", "1")
    index, _ = b.kv.get("py/wait")
    seen = []

    def wait():
        client = consul.Consul(host=b.http.host, port=b.http.port)
        seen.append(client.kv.get("py/wait", index=index, wait="30s"))

    waiting = threading.Thread(target=wait)
    waiting.start()
    a.kv.put("py/other", "1")
    time.sleep(0.3)
    assert not seen, "a change elsewhere woke the query"
    began = time.monotonic()
    a.kv.put("py/wait", "2")
    waiting.join(60)
    # Sooner than without a change.
    assert seen and time.monotonic() - began < 25, "the change did not wake the query"
    assert seen[0][1]["Value"] == b"2" and int(seen[0][0]) > int(index), seen
    began = time.monotonic()
    later, _ = b.kv.get("py/wait", index=seen[0][0], wait="1s")
    assert later == seen[0][0] and 1 <= time.monotonic() - began, "a query without a change ends, and not early"


def locks(members):
    a, b = members[0], members[-1]
    a.kv.delete("py/lock", recurse=True)
    holder = a.session.create(name="holder", ttl=60, lock_delay=10)
    rival = b.session.create(name="rival", behavior="delete", lock_delay=0)
    assert sorted(it["ID"] for it in b.session.list()[1] if it["ID"] in (holder, rival)) == sorted([holder, rival])
    _, info = b.session.info(holder)
    assert info["Name"] == "holder" and info["TTL"] == "60s" and info["LockDelay"] == 10_000_000_000, info
    assert a.session.renew(holder)["ID"] == holder and b.session.renew(holder)["ID"] == holder
    assert a.kv.put("py/lock", "holder", acquire=holder) is True
    assert a.kv.put("py/lock", "holder", acquire=holder) is True
    assert b.kv.put("py/lock", "rival", acquire=rival) is False
    _, found = b.kv.get("py/lock")
    assert found["Session"] == holder and found["LockIndex"] == 1, found
    assert a.session.destroy(holder) is True
    _, found = b.kv.get("py/lock")
    assert "Session" not in found and found["Value"] == b"holder", found
    assert b.kv.put("py/lock", "rival", acquire=rival) is False, "the lock delay"
    give_up = time.monotonic() + 60
    while not b.kv.put("py/lock", "rival", acquire=rival):
        assert time.monotonic() < give_up, "the lock delay does not end"
        time.sleep(0.2)
    assert b.kv.get("py/lock")[1]["LockIndex"] == 2
    assert b.kv.put("py/lock", "free", release=rival) is True
    assert b.kv.put("py/lock", "again", acquire=rival) is True
    assert b.session.destroy(rival) is True
    assert a.kv.get("py/lock")[1] is None, "its behaviour deletes the key"
    try:
        a.session.renew(holder)
    except consul.NotFound:
        pass
    else:
        raise AssertionError("a session that has ended was renewed")


def transactions(members):
    a, b = members[0], members[-1]
    value = base64.b64encode(b"1").decode()
    done = a.txn.put([
        {"KV": {"Verb": "set", "Key": "py/txn/a", "Value": value}},
        {"KV": {"Verb": "get", "Key": "py/txn/a"}},
    ])
    assert done["Errors"] is None and done["Results"][1]["KV"]["Value"] == value, done
    try:
        b.txn.put([
            {"KV": {"Verb": "set", "Key": "py/txn/b", "Value": value}},
            {"KV": {"Verb": "check-not-exists", "Key": "py/txn/a"}},
        ])
    except consul.ConsulException as error:
        assert "409" in str(error), error
    else:
        raise AssertionError("a transaction that does not hold was carried out")
    assert b.kv.get("py/txn/b")[1] is None


def main():
    members = clients(sys.argv[1:])
    if not members:
        sys.exit(__doc__)
    for part in (keys, blocking, locks, transactions):
        part(members)
        print(f"{part.__name__}: as Consul does it")


if __name__ == "__main__":
    main()
