# Nodes of a script's own, as many as it wants; sourced after lib.sh, never run.
# shellcheck shell=bash disable=SC2034,SC2154
#
# The script sets `nodes`, and `client_ports` and `peer_ports` by node.

declare -A pids=()

client_at() {
    printf '127.0.0.1:%s' "${client_ports[$1]}"
}

peer_at() {
    printf '127.0.0.1:%s' "${peer_ports[$1]}"
}

# Takes `--program PATH`, which runs another build, and refuses everything else.
program_of_arguments() {
    while [[ $# -gt 0 ]]; do
        case $1 in
        --program)
            [[ $# -ge 2 ]] || die "--program needs a path"
            export HEADWATER_BIN=$2
            shift 2
            ;;
        *) die "unknown option $1; see scripts/$(basename -- "$0") --help" ;;
        esac
    done
}

# The first members, as `cluster.initial`.
initial() {
    local node members=""
    for node in "${nodes[@]}"; do
        members+="{ id = $node, name = \"node$node\", peer = \"http://$(peer_at "$node")\", client = \"http://$(client_at "$node")\" }, "
    done
    printf '[%s]' "$members"
}

# Starts a node; `first` is what the first members were called when the cluster was formed.
start_node() {
    local node=$1
    "$(binary)" serve --node-id "$node" --node-name "node$node" --data-dir "$work/node$node" \
        --listen-client "$(client_at "$node")" --listen-peer "$(peer_at "$node")" \
        --cluster-token "$(basename -- "$0")-$PORT_OFFSET" --cluster-initial "$first" \
        </dev/null >>"$work/node$node.log" 2>&1 &
    pids[$node]=$!
}

start_nodes() {
    local node
    first=$(initial)
    for node in "${nodes[@]}"; do
        start_node "$node"
    done
}

# Ends all of them; what a script defines as `stop_helpers`.
kill_nodes() {
    local pid
    for pid in "${pids[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
    done
    wait 2>/dev/null || true
}

# Stops a node in order, and waits for its end.
stop_node() {
    kill -TERM "${pids[$1]}"
    wait "${pids[$1]}" || true
}

now_ms() {
    printf '%s' $(($(date +%s%N) / 1000000))
}

# Whether a node takes a write and reads it back, linearizably, by itself: serves NODE SECONDS
serves() {
    local key="show/$1" value
    value=$(now_ms)
    "$(binary)" put "$key" "$value" --endpoints "$(client_at "$1")" --timeout "${2}s" >/dev/null 2>&1 &&
        [[ $("$(binary)" get "$key" --print-value-only --endpoints "$(client_at "$1")" --timeout "${2}s" 2>/dev/null) == "$value" ]]
}

# How long it takes until all the given nodes serve, in ms; fails if one does not within SECONDS: until_served SECONDS NODE …
until_served() {
    local seconds=$1 began node
    shift
    began=$(now_ms)
    for node in "$@"; do
        until serves "$node" 1; do
            (($(now_ms) - began < seconds * 1000)) || return 1
        done
    done
    printf '%s' $(($(now_ms) - began))
}

# The node that leads, as that node knows it; waits for it.
leading_node() {
    local node deadline=$((SECONDS + 60))
    while ((SECONDS < deadline)); do
        for node in "$@"; do
            if "$(binary)" status --endpoints "$(client_at "$node")" --timeout 2s 2>/dev/null | awk -F', ' '$5 == "leader" { found = 1 } END { exit !found }'; then
                printf '%s' "$node"
                return
            fi
        done
        sleep 0.1
    done
    die "no node leads; see $work"
}

# Prints what was found and leaves: with 0 if nothing was wrong: verdict WRONG …
verdict() {
    if [[ $# -ne 0 ]]; then
        printf 'verdict: bad: %s\n' "$@"
        exit 1
    fi
    echo "verdict: good"
}
