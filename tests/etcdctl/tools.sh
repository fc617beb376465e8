# etcdctl's other tools, in order, on an empty cluster of three. Sourced by scripts/test-etcdctl, which defines `e` (run
# etcdctl) and `with` (run it with this text on standard input).
# shellcheck shell=bash

e put a 1
e put b 2
e endpoint health --cluster
e endpoint health -w json
e endpoint hashkv
e endpoint status
e version

# Endpoints named by URL, as the list of members has them
e endpoint status --cluster
e endpoint hashkv --cluster
for node in "${NODES[@]}"; do
    ENDPOINT=http://127.0.0.1:${CLIENT_PORTS[node]} e endpoint status
done
ENDPOINT=http://127.0.0.1:${CLIENT_PORTS[1]} e put c 3
ENDPOINT=http://127.0.0.1:${CLIENT_PORTS[2]} e get c
ENDPOINT=http://127.0.0.1:${CLIENT_PORTS[3]} e endpoint hashkv
ENDPOINT=http://127.0.0.1:${CLIENT_PORTS[3]} e endpoint health
e defrag --cluster

# A mirror of one prefix at another
announce make-mirror HOST:PORT --prefix from/ --dest-prefix to/
e put from/1 one
e put from/2 two
e put other 3
"$ETCDCTL" --endpoints "127.0.0.1:${CLIENT_PORTS[1]}" "${PATIENT[@]}" make-mirror "127.0.0.1:${CLIENT_PORTS[2]}" \
    --prefix from/ --dest-prefix to/ >"$HEADWATER_RUN_DIR/mirror.out" 2>&1 &
mirror=$!
mirrored() {
    [[ $("$ETCDCTL" --endpoints "127.0.0.1:${CLIENT_PORTS[3]}" get to/ --prefix) == "$1" ]]
}
wait_for 20 mirrored $'to/1\none\nto/2\ntwo' || printf 'LATE: not mirrored\n'
e put from/3 three
e del from/1
e put from/2 zwei
wait_for 20 mirrored $'to/2\nzwei\nto/3\nthree' || printf 'LATE: changes are not mirrored\n'
kill -TERM "$mirror"
wait "$mirror" || true
e get to/ --prefix

# Compaction, physically too, and what is left
e compaction 4
e get a --rev=3
e compaction 6 --physical
