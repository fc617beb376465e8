# Three etcd nodes to compare with; sourced after lib.sh.
# shellcheck shell=bash

ETCD_PACKAGE_DIR=$CACHE_DIR/etcd-server
ETCD_PIDS=()

# Prints the path of an etcd server: the machine's, or Debian's, unpacked without installing it, so that no service is
# started.
etcd_binary() {
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

# Starts three nodes with their data below a folder, on the ports of the local cluster: etcd_up FOLDER
etcd_up() {
    local folder=$1 etcd node initial=""
    etcd=$(etcd_binary)
    for node in "${NODES[@]}"; do
        initial+=${initial:+,}node$node=http://127.0.0.1:${PEER_PORTS[node]}
    done
    ETCD_PIDS=()
    for node in "${NODES[@]}"; do
        mkdir -p -- "$folder/node$node"
        # An empty environment: ETCD_ variables would be settings. The quota must hold a million keys.
        env --ignore-environment "$etcd" --name "node$node" --data-dir "$folder/node$node/data" \
            --listen-client-urls "http://127.0.0.1:${CLIENT_PORTS[node]}" \
            --advertise-client-urls "http://127.0.0.1:${CLIENT_PORTS[node]}" \
            --listen-peer-urls "http://127.0.0.1:${PEER_PORTS[node]}" \
            --initial-advertise-peer-urls "http://127.0.0.1:${PEER_PORTS[node]}" \
            --initial-cluster "$initial" --initial-cluster-token "compare-$PORT_OFFSET" \
            --quota-backend-bytes $((8 << 30)) --log-level error \
            </dev/null >>"$folder/node$node/log" 2>&1 &
        ETCD_PIDS+=($!)
    done
    for node in "${NODES[@]}"; do
        wait_for 60 etcd_healthy "$node" || die "etcd node $node is not healthy; see $folder/node$node/log"
    done
}

etcd_healthy() {
    "$(binary)" get health --endpoints "127.0.0.1:${CLIENT_PORTS[$1]}" --timeout 1s >/dev/null 2>&1
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
