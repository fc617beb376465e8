# Maintenance as an operator does it: health, backups, defragmentation, a store that is full and made to take writes
# again. Sourced by scripts/test-etcdctl, which defines `e` (run etcdctl) and `with`, and gives both servers a small quota.
# shellcheck shell=bash

pushd "$HEADWATER_RUN_DIR" >/dev/null || exit

# Runs etcdctl on one node and shows nothing.
quietly() {
    "$ETCDCTL" --endpoints "127.0.0.1:${CLIENT_PORTS[1]}" "${PATIENT[@]}" "$@" >quiet 2>&1
}

# Values of a mebibyte until one is refused: how many fit is each server's own affair.
fill() {
    local number=1 misses=0
    head -c 786000 /dev/urandom | base64 -w0 >mebibyte
    while ((number <= 40 && misses < 3)); do
        if quietly put "fill/$number" <mebibyte; then
            number=$((number + 1)) misses=0
        elif grep -q 'space exceeded' quiet; then
            return
        else
            # The machine may be busy.
            misses=$((misses + 1))
        fi
    done
    echo "not full after $number values: $(<quiet)"
}

# Shows one alarm of a kind: every etcd member that is asked raises its own, here the leader alone does.
once() {
    e "$@" | sed -E 's/(memberID:ID alarm:NOSPACE )(, \1)*/\1/' | uniq
    # The pipe runs `e` in a process of its own, which cannot count for this one.
    count=$((count + 1))
}

# Gives up all history, and the space that it takes.
shrink() {
    local revision node
    revision=$("$ETCDCTL" --endpoints "127.0.0.1:${CLIENT_PORTS[1]}" "${PATIENT[@]}" get none -w json |
        sed 's/.*"revision":\([0-9]*\).*/\1/')
    quietly compaction "$revision" --physical || echo "compaction failed: $(<quiet)"
    for node in "${NODES[@]}"; do
        "$ETCDCTL" --endpoints "127.0.0.1:${CLIENT_PORTS[node]}" "${PATIENT[@]}" defrag >quiet 2>&1 ||
            echo "defrag failed: $(<quiet)"
    done
}

e put before 1
e alarm list
e alarm disarm
e endpoint status
e endpoint health
e snapshot save whole.db
test -s whole.db && echo "there is a file"
test -e whole.db.part || echo "and no part of one"
# Not --cluster: this etcdctl then names servers by whole URLs, which the HTTP/2 library here refuses.
e defrag
e defrag
e defrag

# Full
fill
e put after 1
e put before 2
e lease grant 60
with '

put after 1


' txn
with '

get before


' txn
e get before
once alarm list
once endpoint status
e endpoint health
e snapshot save full.db
e del before
e del fill/ --prefix --prev-kv=false >removed
grep -c '^[0-9]' removed
e put after 1

# And not any more
shrink
once alarm disarm
e alarm list
e alarm disarm
e put after 1
e get after
e lease grant 60 >granted
grep -c 'granted with TTL(60s)' granted
e endpoint status

popd >/dev/null || exit
