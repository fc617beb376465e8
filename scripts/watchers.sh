# `etcdctl watch` on every node at once, as a transcript; sourced by scripts/test-etcdctl after lib.sh.
# shellcheck shell=bash disable=SC2154
#
# Owns the three watchers of a scenario. What they print must be the same on every node; then it is shown once, as
# "| line". Where they differ, each node's is shown, as "nodeN| line". Nothing here sleeps for a while and hopes: that a
# watcher is there is read from the server's own count, and that it has printed enough from the number of its lines.

# How long a watcher may take to start, to print what it must, or to end.
WATCH_SECONDS=${HEADWATER_WATCH_SECONDS:-20}

# The watchers' processes and standard inputs, by node.
declare -A WATCHER_PIDS=() WATCHER_INPUTS=()
# Lines of the watchers' output and complaints that the transcript has.
declare -A SHOWN=([out]=0 [err]=0)
# How many watchers each node should count now.
COUNTED=0
# What of their output counts: all, or what `progress_once` leaves where progress is notified again and again.
OUTPUT='cat'
# Whether a watcher of this scenario was late: the others are not waited for as long.
IS_LATE=false
# How often something was late in this run.
LATE=0

scenario() {
    printf '\n== %s\n' "$*"
}

# Runs `etcdctl watch …` on every node, and goes on when every node has the watcher.
watch() {
    announce watch "$@"
    start_watchers watch "$@"
    await_counted 1
}

# The same for a watch that ends by itself, and may never be counted.
watch_briefly() {
    announce watch "$@"
    start_watchers watch "$@"
}

# Runs `etcdctl watch -i …` on every node.
interact() {
    announce watch -i "$@"
    start_watchers watch -i "$@"
}

# Types a line at the interactive watchers; COUNT watchers more are there when it goes on: types LINE [COUNT]
types() {
    local node
    printf '> %s\n' "$1"
    for node in "${NODES[@]}"; do
        # One that has ended does not read it, and is found out later.
        (trap '' PIPE && printf '%s\n' "$1" >&"${WATCHER_INPUTS[$node]}") 2>/dev/null || true
    done
    await_counted "${2:-0}"
}

# Ends the input of the interactive watchers.
hangs_up() {
    printf '> (end of input)\n'
    close_inputs
}

# Goes on when every watcher has printed so many lines more, and shows them.
shows() {
    more out '| ' "$OUTPUT" "$1"
}

# Goes on when every watcher has complained in so many lines more, and shows them.
complains() {
    more err '! ' complaints "$1"
}

# Goes on when every watcher has ended by itself; shows what was not shown yet, errors, and exit status.
ends() {
    local node
    for node in "${NODES[@]}"; do
        if ! patiently ended "$node"; then
            is_late
            printf 'LATE: node%s has not ended\n' "$node"
            kill -TERM "${WATCHER_PIDS[$node]}" 2>/dev/null || true
        fi
    done
    clear_away status
}

# Stops the watchers; shows what was not shown yet, and errors.
stop() {
    local node
    for node in "${NODES[@]}"; do
        if ended "$node"; then
            printf 'node%s has ended by itself\n' "$node"
        else
            kill -TERM "${WATCHER_PIDS[$node]}" 2>/dev/null || true
        fi
    done
    clear_away
}

# What must not stay behind, however this ends.
kill_watchers() {
    local pid
    for pid in "${WATCHER_PIDS[@]}"; do
        kill -KILL "$pid" 2>/dev/null || true
    done
}

start_watchers() {
    local node input
    count=$((count + 1))
    SHOWN=([out]=0 [err]=0)
    IS_LATE=false
    for node in "${NODES[@]}"; do
        : >"$(watcher_file "$node" out)"
        : >"$(watcher_file "$node" err)"
        rm -f -- "$(watcher_file "$node" in)"
        mkfifo -- "$(watcher_file "$node" in)"
        "$ETCDCTL" --endpoints "127.0.0.1:${CLIENT_PORTS[node]}" "${PATIENT[@]}" "$@" <"$(watcher_file "$node" in)" \
            >"$(watcher_file "$node" out)" 2>"$(watcher_file "$node" err)" &
        WATCHER_PIDS[$node]=$!
    done
    # After all of them are started: none holds the input of another open.
    for node in "${NODES[@]}"; do
        exec {input}>"$(watcher_file "$node" in)"
        WATCHER_INPUTS[$node]=$input
    done
}

# Waits for the watchers' ends, shows the rest, and goes on when no node counts a watcher any more.
clear_away() {
    local node status
    for node in "${NODES[@]}"; do
        status=0
        wait "${WATCHER_PIDS[$node]}" 2>/dev/null || status=$?
        printf '%s\n' "$status" >"$(watcher_file "$node" status)"
    done
    WATCHER_PIDS=()
    # Not before: an interactive watch would complain.
    close_inputs
    together out '| ' part "$OUTPUT" "$((SHOWN[out] + 1))" '$'
    together err '! ' part complaints "$((SHOWN[err] + 1))" '$'
    if [[ ${1:-} == status ]]; then
        together status 'exit status ' cat
    fi
    COUNTED=0
    await_counted 0
}

close_inputs() {
    local input
    for input in "${WATCHER_INPUTS[@]}"; do
        exec {input}>&-
    done
    WATCHER_INPUTS=()
}

# Goes on when every node counts so many watchers more.
await_counted() {
    local node
    COUNTED=$((COUNTED + $1))
    for node in "${NODES[@]}"; do
        if ! patiently counted "$node" "$COUNTED"; then
            is_late
            printf 'LATE: node%s counts %s watchers, not %s\n' "$node" "$(watchers_on "$node")" "$COUNTED"
        fi
    done
}

counted() {
    [[ $(watchers_on "$1") == "$2" ]]
}

# How many watchers the node says it has. Both servers count a watcher once no later write can escape it.
watchers_on() {
    curl --noproxy '*' --silent --max-time 5 "http://127.0.0.1:${CLIENT_PORTS[$1]}/metrics" |
        awk '$1 == "etcd_debugging_mvcc_watcher_total" { print $2 }'
}

ended() {
    ! kill -0 "${WATCHER_PIDS[$1]}" 2>/dev/null
}

# Waits for COUNT more lines of what FILTER leaves of FILE, and shows them: more FILE MARK FILTER COUNT
more() {
    local file=$1 mark=$2 filter=$3 node found
    local from=$((SHOWN[$file] + 1)) to=$((SHOWN[$file] + $4))
    if ! patiently printed_everywhere "$file" "$filter" "$to"; then
        is_late
        for node in "${NODES[@]}"; do
            found=$(lines "$node" "$file" "$filter")
            if [[ $found -lt $to ]]; then
                printf 'LATE: node%s has printed %s of %s lines\n' "$node" "$found" "$to"
            fi
        done
    fi
    together "$file" "$mark" part "$filter" "$from" "$to"
    SHOWN[$file]=$to
}

# Lines that FILTER leaves of what a watcher wrote to FILE: lines NODE FILE FILTER
lines() {
    "$3" <"$(watcher_file "$1" "$2")" | wc -l
}

printed_everywhere() {
    local node
    for node in "${NODES[@]}"; do
        [[ $(lines "$node" "$1" "$2") -ge $3 ]] || return 1
    done
}

# The lines FROM to TO of what FILTER leaves: part FILTER FROM TO
part() {
    "$1" | sed -n "$2,$3p"
}

patiently() {
    if [[ $IS_LATE == true ]]; then
        wait_for 1 "$@"
    else
        wait_for "$WATCH_SECONDS" "$@"
    fi
}

is_late() {
    IS_LATE=true
    LATE=$((LATE + 1))
}

watcher_file() {
    printf '%s/watcher%s.%s\n' "$HEADWATER_RUN_DIR" "$1" "$2"
}

# Shows what a command makes of one of the watchers' files, once if it is the same on every node.
together() {
    local file=$1 mark=$2 node
    shift 2
    for node in "${NODES[@]}"; do
        "$@" <"$(watcher_file "$node" "$file")" | normalised >"$(watcher_file "$node" part)"
    done
    if cmp --quiet "$(watcher_file 1 part)" "$(watcher_file 2 part)" &&
        cmp --quiet "$(watcher_file 1 part)" "$(watcher_file 3 part)"; then
        sed "s/^/$mark/" "$(watcher_file 1 part)"
    else
        for node in "${NODES[@]}"; do
            sed "s/^/node$node$mark/" "$(watcher_file "$node" part)"
        done
    fi
}

# What etcdctl complains of, without what its library logs: that holds times and random names.
complaints() {
    grep -avE '^\{"level":|^[0-9]{4}[-/][0-9]{2}[-/][0-9]{2}' || true
}

# Leaves the first of the notifications of each revision.
progress_once() {
    awk '!/^progress notify: |"Events":\[\]/ || !seen[$0]++'
}
