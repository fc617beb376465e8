# Leases, locks and elections at etcdctl, in order, on an empty cluster of three. Sourced by scripts/test-etcdctl, which
# defines `e` (run etcdctl) and `with` (run it with this text on standard input).
# shellcheck shell=bash

# Runs a command that holds something, and goes on when it has printed: holds NAME ARGUMENT …
declare -A HELD=()
holds() {
    local name=$1 node=${NODES[count % 3]}
    shift
    count=$((count + 1))
    announce "$@"
    : >"$HEADWATER_RUN_DIR/$name.out"
    "$ETCDCTL" --endpoints "127.0.0.1:${CLIENT_PORTS[node]}" "${PATIENT[@]}" "$@" \
        >"$HEADWATER_RUN_DIR/$name.out" 2>"$HEADWATER_RUN_DIR/$name.err" &
    HELD[$name]=$!
}

# Goes on when it has printed so many lines: has_printed NAME LINES
has_printed() {
    enough() {
        [[ $(wc -l <"$HEADWATER_RUN_DIR/$1.out") -ge $2 ]]
    }
    if ! wait_for 20 enough "$1" "$2"; then
        LATE=$((LATE + 1))
        printf 'LATE: %s has not printed %s lines\n' "$1" "$2"
    fi
}

# Ends it as a supervisor would, and shows what it printed: lets_go NAME
lets_go() {
    local status=0
    kill -TERM "${HELD[$1]}" 2>/dev/null || true
    wait "${HELD[$1]}" || status=$?
    printf '(%s is ended)\n' "$1"
    normalised <"$HEADWATER_RUN_DIR/$1.out"
    if [[ $status -ne 0 ]]; then
        printf 'exit status %s\n' "$status"
    fi
}

# The id of the lease that was granted last.
granted() {
    grep -oE '[0-9a-f]{16}' "$HEADWATER_RUN_DIR/out" | head -n 1
}

# Leases
e lease grant 60
lease=$(granted)
e lease grant 600
e lease list
e lease grant 1
e lease grant 600 -w json
e lease grant 9000000001
e lease grant
e lease grant x
e put l/1 one --lease="$lease"
e put l/2 two --lease="$lease"
e get l/1
e lease timetolive "$lease"
e lease timetolive "$lease" --keys
e lease timetolive "$lease" --keys -w json
e put l/2 detached
e lease timetolive "$lease" --keys
e put l/1 again --ignore-lease
e lease timetolive "$lease" --keys
e lease keep-alive "$lease" --once
e lease keep-alive "$lease" --once -w json
e lease revoke "$lease"
e lease revoke "$lease"
e lease keep-alive "$lease" --once
e lease keep-alive "$lease"
e lease timetolive "$lease"
e lease timetolive "$lease" -w json
e get l/ --prefix
e put l/3 three --lease="$lease"
e lease revoke notalease
e lease timetolive notalease

# A lease that ends takes its keys along
e lease grant 10
lease=$(granted)
e put short lived --lease="$lease"
expired() {
    local found
    found=$("$ETCDCTL" --endpoints "127.0.0.1:${CLIENT_PORTS[1]}" "${PATIENT[@]}" get short) && [[ -z $found ]]
}
wait_for 60 expired || printf 'LATE: the lease has not ended\n'
e get short
e lease timetolive "$lease"
e lease grant 600
lease=$(granted)
e put tied v --lease="$lease"
e get tied --print-value-only

# Locks
e lock printed echo held
# shellcheck disable=SC2016 # to be expanded by the command that is run
e lock key -- sh -c 'echo "${ETCD_LOCK_KEY%/*}"; test "$ETCD_LOCK_REV" -gt 1 && echo a revision'
e lock status -- sh -c 'exit 3'
e get printed --prefix
holds first lock queue
has_printed first 2
holds second lock queue --ttl 30
two_wait() {
    [[ $("$ETCDCTL" --endpoints "127.0.0.1:${CLIENT_PORTS[2]}" get queue/ --prefix --keys-only | grep -c .) -eq 2 ]]
}
wait_for 20 two_wait || printf 'LATE: the second one does not wait\n'
e get queue/ --prefix --keys-only
lets_go first
has_printed second 2
lets_go second
e get queue/ --prefix --keys-only
e lock

# Elections
holds listener elect --listen who
holds leader elect who one
has_printed leader 2
has_printed listener 2
holds next elect who two
two_stand() {
    [[ $("$ETCDCTL" --endpoints "127.0.0.1:${CLIENT_PORTS[2]}" get who/ --prefix --keys-only | grep -c .) -eq 2 ]]
}
wait_for 20 two_stand || printf 'LATE: the second one does not stand\n'
e get who/ --prefix --sort-by=create
lets_go leader
has_printed next 2
has_printed listener 4
lets_go next
lets_go listener
e get who/ --prefix
e elect
e elect who
