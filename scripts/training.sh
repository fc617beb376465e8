# Loads of all APIs, for counts of what the program does; sourced after lib.sh, never run.
# shellcheck shell=bash

# Gives the script a cluster of its own, whose nodes may take long to stop: they write their counts. Settings of the environment are
# not for its nodes and clients: training_cluster OFFSET
training_cluster() {
    local name
    while read -r name; do
        case $name in
        HEADWATER_BIN | HEADWATER_PORT_OFFSET | HEADWATER_RUN_DIR | HEADWATER_WAIT_SECONDS) ;;
        *) unset "$name" ;;
        esac
    done < <(compgen -e HEADWATER_)
    export HEADWATER_STOP_SECONDS=120
    own_cluster "$1"
}

# Runs all loads on the script's own cluster, each for a number of seconds: training_loads SECONDS
training_loads() {
    local seconds=$1 clients
    for clients in 1 64 256; do
        training_load put --clients "$clients" --duration "${seconds}s" --quiet
    done
    training_load get --fill --clients 64 --duration "${seconds}s" --quiet
    training_load get --fill --clients 64 --consistency s --duration "${seconds}s" --quiet
    training_load range --fill --limit 1000 --clients 4 --duration "${seconds}s" --quiet
    training_load txn --clients 64 --duration "${seconds}s" --quiet
    training_load mixed --clients 64 --duration "${seconds}s" --quiet
    training_load commit --clients 64 --duration "${seconds}s" --quiet
    training_load past --fill --clients 8 --duration "${seconds}s" --quiet
    training_load lease --clients 64 --duration "${seconds}s" --quiet
    training_load watch --streams 100 --watchers 10 --watch-keys 1 --clients 64 --duration "${seconds}s" --quiet
    training_load watch --streams 100 --watchers 10 --watch-keys 1000 --clients 256 --duration "${seconds}s" --quiet
    training_load watch-latency --streams 3 --rate 100 --duration "${seconds}s" --quiet
    training_load resource --fill --clients 64 --duration "${seconds}s" --quiet
    training_load resource-list --resources 10000 --watchers 100 --quiet
    training_load follow --duration "${seconds}s"
    training_load subscribe --instances 1000 --subscriptions 100 --rate 200 --duration "${seconds}s"
}

# Stops the cluster, each of whose nodes writes its counts to PREFIX, its process id and SUFFIX when it ends; fails if one has not:
# stop_counting PREFIX SUFFIX
stop_counting() {
    local node file files=()
    for node in "${NODES[@]}"; do
        files+=("$1$("$ROOT/scripts/cluster" pid "$node")$2")
    done
    "$ROOT/scripts/cluster" down >&2
    for file in "${files[@]}"; do
        [[ -s $file ]] || die "a node has not written its counts to $file: does $HEADWATER_BIN count its branches?"
    done
}

training_load() {
    step "$*"
    "$HEADWATER_BIN" bench "$@" --endpoints "$(endpoints)" >/dev/null
}
