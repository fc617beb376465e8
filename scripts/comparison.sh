# Two clusters of three nodes on this machine, measured with the same loads in turn; sourced after lib.sh, never run.
# shellcheck shell=bash disable=SC2034,SC2154
#
# The script sets `names`, the two clusters: the second is compared with the first. It defines `turn_to NAME`, which makes all
# that follows be about that cluster (with `place_at`), and `start NAME`, which starts it with empty directories. Then it calls
# `comparison_options "$@"`, `begin_comparison` and `compare`. Row by row one cluster is measured right after the other, the
# order changing from round to round; the other one idles meanwhile. A ratio is the median of the rounds' ratios, so that a
# machine whose speed drifts does not matter much.

# Defaults of the options, which the script may change before it reads them.
rounds=5 seconds=5 row_list=put-64,put-256 least=0 folder=$CACHE_DIR/compare
# What starts and stops the cluster at hand.
cluster=$ROOT/scripts/cluster
# Different keys of a load, and the puts before a round. Gets find their keys if there are as many puts as keys.
keys=100000 first_puts=5000

comparison_options() {
    local option
    while [[ $# -gt 0 ]]; do
        option=$1
        case $option in
        --rounds | --seconds | --rows | --least | --dir)
            [[ $# -ge 2 ]] || die "$option needs a value"
            shift
            case $option in
            --rounds) rounds=$1 ;;
            --seconds) seconds=$1 ;;
            --rows) row_list=$1 ;;
            --least) least=$1 ;;
            --dir) folder=$1 ;;
            esac
            ;;
        *) die "unknown option $option; see scripts/$(basename -- "$0") --help" ;;
        esac
        shift
    done
    IFS=, read -r -a rows <<<"$row_list"
}

# Builds the program, and makes the folder of both clusters, `work`.
begin_comparison() {
    command -v jq >/dev/null || need_packages jq
    build
    mkdir -p -- "$folder"
    case $(stat --file-system --format=%T "$folder") in
    tmpfs | ramfs) die "$folder is in memory, where flushing costs nothing; name a folder on a disk with --dir" ;;
    esac
    TMPDIR=$folder own_folder
    base_offset=$PORT_OFFSET
}

# Makes all that follows be about the cluster NAME, at so many ports above the usual ones: place_at NAME OFFSET
place_at() {
    export HEADWATER_RUN_DIR=$work/$1 HEADWATER_PORT_OFFSET=$((base_offset + $2))
    place_cluster
}

stop_helpers() {
    local name
    for name in "${names[@]}"; do
        turn_to "$name"
        "$cluster" down
    done
}

# Starts a cluster with empty directories: start_fresh NAME [OPTION …]
start_fresh() {
    turn_to "$1"
    "$cluster" up --fresh "${@:2}" >/dev/null 2>"$work/up.log" || {
        cat -- "$work/up.log" >&2
        die "the cluster ($1) does not start"
    }
}

# A load on the cluster at hand: load KIND CLIENTS [OPTION …]
load() {
    "$(binary)" bench "$1" --clients "$2" --keys "$keys" --val-size 256 --quiet "${@:3}"
}

# The endpoints of the cluster at hand, the leader's first. It is asked itself: a program of another checkout has other ports.
leader_first() {
    "$cluster" status | awk '$1 == "endpoints" { all = $2 } $1 == "leader" && $2 != "none" { leader = $2 } END {
        if (leader == "") exit
        printf "%s", leader
        split(all, each, ",")
        for (at = 1; at in each; at++) if (each[at] != leader) printf ",%s", each[at]
    }'
}

# One row on one cluster: measure ROUND NAME ROW
measure() {
    local name=$2 row=$3 where node pids=() file=$work/$1.$2.$3.json
    turn_to "$name"
    where=$(once_known "no node leads" leader_first) || die "the cluster ($name) has no leader"
    for node in "${NODES[@]}"; do
        pids+=("$("$cluster" pid "$node")")
    done
    sync
    load "${row%-*}" "${row##*-}" --duration "${seconds}s" --write-out json --endpoints "$where" --pids "$(
        IFS=,
        printf '%s' "${pids[*]}"
    )" >"$file" || die "$row failed ($name)"
    jq -r --arg name "$name" --arg row "$row" '"  \($name)\t\($row)\t\(.operations_per_second | round)/s"' "$file" >&2
}

# Measures all rows in all rounds.
measure_all() {
    local round order name row
    for ((round = 1; round <= rounds; round++)); do
        order=("${names[@]}")
        ((round % 2 == 1)) || order=("${names[1]}" "${names[0]}")
        say "round $round of $rounds"
        for name in "${order[@]}"; do
            start "$name"
            turn_to "$name"
            # Connections are made and caches filled before anything counts.
            load put 64 --total "$first_puts" --sequential --endpoints "$(once_known "no node leads" leader_first)" >/dev/null
        done
        for row in "${rows[@]}"; do
            for name in "${order[@]}"; do
                measure "$round" "$name" "$row"
            done
        done
        for name in "${order[@]}"; do
            turn_to "$name"
            "$cluster" down --wipe
        done
    done
}

# Prints the figures of a row, and notes them in `work`.
print_row() {
    local round row=$1
    for ((round = 1; round <= rounds; round++)); do
        jq -s -c '{one: .[0], other: .[1]}' "$work/$round.${names[0]}.$row.json" "$work/$round.${names[1]}.$row.json"
    done | jq -s -r --arg row "$row" '
        def median: sort | if length % 2 == 1 then .[length / 2 | floor] else (.[length / 2 - 1] + .[length / 2]) / 2 end;
        def columns(f): [([.[] | .one | f] | median), ([.[] | .other | f] | median)];
        def ratios(f): [.[] | (.other | f) / (.one | f)];
        [$row] + columns(.operations_per_second)
            + [(ratios(.operations_per_second) | median, min, max)]
            + columns(.server_cpu_us_per_operation) + [ratios(.server_cpu_us_per_operation) | median]
            + columns(.client_cpu_us_per_operation) + [ratios(.client_cpu_us_per_operation) | median] | @tsv' >"$work/row"
    awk -F'\t' '{ printf "%-8s | %9.0f %9.0f %6.2f %5.2f-%5.2f | %9.1f %9.1f %6.2f | %9.1f %9.1f %6.2f\n", $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12 }' "$work/row"
}

# Measures and prints everything; fails if a row's ratio of operations a second is below --least.
compare() {
    local row failed=false load_before one=${names[0]} other=${names[1]}
    load_before=$(cut -d ' ' -f 1-3 /proc/loadavg)
    measure_all
    printf '%s ÷ %s, %s rounds of %s s; load before %s\n' "$other" "$one" "$rounds" "$seconds" "$load_before"
    printf '%-8s | %9s %9s %6s %11s | %9s %9s %6s | %9s %9s %6s\n' row "$one/s" "$other/s" ratio '(min-max)' \
        "$one us" "$other us" ratio 'client us' "$other us" ratio
    for row in "${rows[@]}"; do
        print_row "$row"
        awk -F'\t' -v least="$least" '{ exit !($4 * 100 >= least) }' "$work/row" || failed=true
    done
    [[ $failed == false ]] || die "a row is below $least percent"
}
