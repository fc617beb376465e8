# Three etcd nodes to compare with; sourced after lib.sh.
# shellcheck shell=bash

ETCD_PACKAGE_DIR=$CACHE_DIR/etcd-server
ETCD_PIDS=()

# Prints the path of an etcd server: $etcd_given, the machine's, or Debian's, unpacked without installing it, so that no
# service is started.
etcd_binary() {
    if [[ -n ${etcd_given:-} ]]; then
        printf '%s\n' "$etcd_given"
        return
    fi
    if command -v etcd; then
        return
    fi
    if [[ ! -x $ETCD_PACKAGE_DIR/usr/bin/etcd ]]; then
        say "fetching Debian's etcd-server (unpacked to $ETCD_PACKAGE_DIR, not installed)"
        mkdir -p -- "$ETCD_PACKAGE_DIR"
        apt_fresh
        # apt-get gives up its rights to fetch, and cannot write into a folder of root's: the warning is harmless.
        (cd "$ETCD_PACKAGE_DIR" && apt-get download --quiet etcd-server >&2 && dpkg -x etcd-server_*.deb .)
    fi
    printf '%s\n' "$ETCD_PACKAGE_DIR/usr/bin/etcd"
}

# Prints the path of an etcdctl that knows `watch --progress-notify`, which Debian 12's does not: the machine's, or that
# of Debian 13, unpacked without installing it.
newer_etcdctl() {
    local folder=$CACHE_DIR/etcd-client-13 apt
    if [[ $(etcdctl watch --help 2>&1) == *--progress-notify* ]]; then
        command -v etcdctl
        return
    fi
    if [[ ! -x $folder/usr/bin/etcdctl ]]; then
        say "fetching Debian 13's etcd-client (unpacked to $folder, not installed)"
        mkdir -p -- "$folder/lists/partial" "$folder/cache/archives/partial"
        printf 'deb [signed-by=%s] http://deb.debian.org/debian trixie main\n' \
            /usr/share/keyrings/debian-archive-keyring.gpg >"$folder/sources"
        # An index of its own: the machine's stays as it is.
        apt=(-o "Dir::Etc::sourcelist=$folder/sources" -o Dir::Etc::sourceparts=/dev/null
            -o "Dir::State::lists=$folder/lists" -o "Dir::Cache=$folder/cache" -o Acquire::Languages=none)
        (cd "$folder" && apt-get "${apt[@]}" --quiet update >&2 &&
            apt-get "${apt[@]}" --quiet download etcd-client >&2 && dpkg -x etcd-client_*.deb .) ||
            die "there is no etcdctl of 3.5 or later, and Debian 13's cannot be fetched"
        rm -rf -- "$folder/lists" "$folder/cache"
    fi
    printf '%s\n' "$folder/usr/bin/etcdctl"
}

# Starts three nodes with their data below a folder, on the ports of the local cluster, with these arguments besides:
# etcd_up FOLDER [ARGUMENT …]
etcd_up() {
    local folder=$1 etcd node initial=""
    shift
    etcd=$(etcd_binary)
    for node in "${NODES[@]}"; do
        initial+=${initial:+,}node$node=http://127.0.0.1:${PEER_PORTS[node]}
    done
    ETCD_PIDS=()
    for node in "${NODES[@]}"; do
        mkdir -p -- "$folder/node$node"
        # An empty environment: ETCD_ variables would be settings. The quota must hold two million keys.
        env --ignore-environment "$etcd" --name "node$node" --data-dir "$folder/node$node/data" \
            --listen-client-urls "http://127.0.0.1:${CLIENT_PORTS[node]}" \
            --advertise-client-urls "http://127.0.0.1:${CLIENT_PORTS[node]}" \
            --listen-peer-urls "http://127.0.0.1:${PEER_PORTS[node]}" \
            --initial-advertise-peer-urls "http://127.0.0.1:${PEER_PORTS[node]}" \
            --initial-cluster "$initial" --initial-cluster-token "compare-$PORT_OFFSET" \
            --quota-backend-bytes $((8 << 30)) --log-level error "$@" \
            </dev/null >>"$folder/node$node/log" 2>&1 &
        ETCD_PIDS+=($!)
    done
    for node in "${NODES[@]}"; do
        wait_for 60 etcd_healthy "$node" || die "etcd node $node is not healthy; see $folder/node$node/log"
    done
}

etcd_healthy() {
    "$(binary)" get health --endpoints "127.0.0.1:${CLIENT_PORTS[$1]}" --timeout 5s >/dev/null 2>&1
}

etcd_down() {
    local pid
    for pid in "${ETCD_PIDS[@]}"; do
        kill -TERM "$pid" 2>/dev/null || true
    done
    for pid in "${ETCD_PIDS[@]}"; do
        wait "$pid" 2>/dev/null || true
    done
    ETCD_PIDS=()
}
