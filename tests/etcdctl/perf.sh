# etcdctl's own measurements, on an empty cluster of three; they take a minute. Sourced by scripts/test-etcdctl.
# shellcheck shell=bash

# How fast it was, and how much memory it took, is shown by `check` and not compared; whether it passes is.
checks() {
    local status=0 node=${NODES[count % 3]}
    count=$((count + 1))
    announce check "$@"
    "$ETCDCTL" --endpoints "127.0.0.1:${CLIENT_PORTS[node]}" check "$@" >"$HEADWATER_RUN_DIR/out" \
        2>"$HEADWATER_RUN_DIR/err" || status=$?
    # The bar of progress ends with a carriage return.
    tr '\r' '\n' <"$HEADWATER_RUN_DIR/out" | grep -aE '^(PASS|FAIL)' | sed -E 's/[0-9.]+/N/g'
    if [[ $status -ne 0 ]]; then
        printf 'exit status %s\n' "$status"
    fi
}

checks datascale --load=s
checks perf --load=s
e get /etcdctl-check-perf/ --prefix --keys-only
