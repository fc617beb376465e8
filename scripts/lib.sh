# Shared by the scripts beside it; sourced, never run.
# shellcheck shell=bash disable=SC2034

set -euo pipefail

# Called as `script → helper`: this file's folder is scripts/, whatever the working directory is.
ROOT=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd -P)
CACHE_DIR=${XDG_CACHE_HOME:-$HOME/.cache}/headwater
# RocksDB takes minutes to compile: one target folder for every clone and every script.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$CACHE_DIR/target}
[[ $CARGO_TARGET_DIR == /* ]] || CARGO_TARGET_DIR=$PWD/$CARGO_TARGET_DIR
# A fresh rustup puts cargo here, and a shell that was open before does not know it.
if [[ -d ${CARGO_HOME:-$HOME/.cargo}/bin ]]; then
    PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
fi

# The local cluster. HEADWATER_PORT_OFFSET moves every port, so that a second one can run beside the first.
#
# What scripts add to it is listed here, so that all of them can run beside each other. A node has two ports in a row: offsets
# are two apart at least.
#
#     0        cluster, and with it demo and bench
#    10,  20   backup-restore: before and after
#    50        test-gateway
#    60        test-resources
#    70,  76   test-subscribe, and what it restores
#    80        test-consul
#    90,  96   test-watcher, and what it restores
#   100        test-etcdctl
#   110        test-console
#   120        test-dns
#   130        watch-through-faults
#   140        test-tls
#   150        show-handshakes
#   160        test-store
#   200, 210   compare-etcd: etcd and Headwater. CI adds 200 to everything
#   220        show-services
#   230        show-fencing
#   240        lease-failover
#   250 - 254  show-lost-members: five nodes
#   256, 258   show-moving
#   262, 264   show-lossy-peers: nodes, and proxies of their peer ports
#   270        show-owners
#   280        show-attacks
#   290, 300   compare-tls: plain text and TLS
#   310, 320   compare-auth: without and with authentication
#   330        profile
#   340, 350   compare-programs: the other program and this one
#   360        compare-store
#   370        train
#   380        layout
#
# membership has ports of its own from 24301 on, chaos from 23000 on; HEADWATER_PORT_OFFSET moves them as well.
NODES=(1 2 3)

# Puts the local cluster where the environment says.
place_cluster() {
    PORT_OFFSET=${HEADWATER_PORT_OFFSET:-0}
    # Linux gives ports from 32768 on to outgoing connections, and one that was in use a minute ago cannot be listened on. So
    # a cluster that was moved out of the way does not use one of those.
    local third=$((PORT_OFFSET == 0 ? 32379 : 12379 + PORT_OFFSET))
    CLIENT_PORTS=([1]=$((2379 + PORT_OFFSET)) [2]=$((22379 + PORT_OFFSET)) [3]=$third)
    DNS_PORTS=([1]=$((8600 + PORT_OFFSET)) [2]=$((28600 + PORT_OFFSET)) [3]=$((PORT_OFFSET == 0 ? 38600 : 18600 + PORT_OFFSET)))
    DNS_TLS_PORTS=([1]=$((9853 + PORT_OFFSET)) [2]=$((29853 + PORT_OFFSET)) [3]=$((19853 + PORT_OFFSET)))
    PEER_PORTS=([1]=$((2380 + PORT_OFFSET)) [2]=$((22380 + PORT_OFFSET)) [3]=$((third + 1)))
    RUN_DIR=${HEADWATER_RUN_DIR:-$ROOT/cluster/run}
    # Processes are recognised by it, so it must be the same from every folder.
    [[ $RUN_DIR == /* ]] || RUN_DIR=$PWD/$RUN_DIR
}
place_cluster

say() {
    printf '%s\n' "$*" >&2
}

step() {
    printf '\n== %s\n' "$*" >&2
}

die() {
    printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
    exit 1
}

# Prints the comment block at the top of the script that was called, as its usage.
usage() {
    awk 'NR > 1 { if (!/^#/) exit; sub(/^# ?/, ""); print }' "$0"
}

# Prints the usage and leaves if the arguments ask for it.
usage_if_asked() {
    local argument
    for argument in "$@"; do
        case $argument in
        -h | --help | help)
            usage
            exit 0
            ;;
        esac
    done
}

as_root() {
    if [[ $(id -u) -eq 0 ]]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "root is needed for: $* (and there is no sudo)"
    fi
}

# Installs the Debian packages that are missing, and says so.
need_packages() {
    local package missing=()
    for package in "$@"; do
        if ! dpkg-query --show --showformat='${db:Status-Status}\n' "$package" 2>/dev/null | grep -qx installed; then
            missing+=("$package")
        fi
    done
    if [[ ${#missing[@]} -eq 0 ]]; then
        return
    fi
    command -v apt-get >/dev/null || die "these Debian packages are missing, and there is no apt-get: ${missing[*]}"
    say "installing ${missing[*]}"
    apt_fresh
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install --yes --quiet --no-install-recommends \
        "${missing[@]}" >&2
}

# Fetches the package index, once for each run of a script.
apt_fresh() {
    if [[ -z ${APT_IS_FRESH:-} ]]; then
        as_root apt-get update --quiet >&2 || say "apt-get update failed; going on with the index that is there"
        export APT_IS_FRESH=1
    fi
}

# Makes cargo of the right version available.
need_rust() {
    local wanted
    wanted=$(sed -n 's/^channel = "\(.*\)"/\1/p' "$ROOT/rust-toolchain.toml")
    if ! command -v cargo >/dev/null; then
        say "installing rustup (Rust's own installer, into ${CARGO_HOME:-$HOME/.cargo})"
        need_packages ca-certificates curl
        curl --proto '=https' --tlsv1.2 --fail --silent --show-error https://sh.rustup.rs |
            sh -s -- -y --no-modify-path --profile minimal --default-toolchain none >&2
        PATH=${CARGO_HOME:-$HOME/.cargo}/bin:$PATH
    fi
    # rustup reads rust-toolchain.toml and fetches what is missing.
    (cd "$ROOT" && cargo --version >/dev/null) || die "cargo does not run; Rust $wanted is needed"
    local found
    found=$(cd "$ROOT" && cargo --version | awk '{ print $2 }')
    if [[ $(printf '%s\n' "$wanted" "$found" | sort --version-sort | head -n 1) != "$wanted" ]]; then
        die "cargo is $found, $wanted or later is needed: install rustup (https://rustup.rs), it does the rest"
    fi
}

# Gives a script a folder of its own, `work`. How the script ends is `finish`.
own_folder() {
    work=$(mktemp -d)
    trap finish EXIT
    trap 'exit 130' INT TERM
}

OWNS_CLUSTER=false

# Gives a script a cluster of its own, beside whatever runs on the usual ports, with data and logs in `work`; the script
# starts it, `finish` stops it: own_cluster OFFSET
own_cluster() {
    own_folder
    export HEADWATER_PORT_OFFSET=$((PORT_OFFSET + $1)) HEADWATER_RUN_DIR=$work
    place_cluster
    OWNS_CLUSTER=true
}

# Stops what a script has started besides its own cluster; a script that starts anything defines it anew.
stop_helpers() {
    :
}

# Stops everything, and removes `work` unless something went wrong: then it is evidence, which whoever interrupts a script
# does not want. A crash has its evidence, too: its status is seldom 1.
finish() {
    local status=$?
    # Whoever interrupts twice leaves no node behind.
    trap '' INT TERM
    stop_helpers || true
    if [[ $OWNS_CLUSTER == true ]]; then
        "$ROOT/scripts/cluster" down || true
    fi
    if [[ $status -eq 0 || $status -eq 130 ]]; then
        rm -rf -- "$work"
    else
        say "what was printed, and the nodes' data and logs, stay in $work"
    fi
}

# Ends a suite that cannot run here with the reason, which scripts/check repeats; if it must run (1), that is a failure:
# skip MUST-RUN REASON
skip() {
    if [[ $1 == 1 ]]; then
        die "$2"
    fi
    say "skipped: $2"
    exit 0
}

# Makes a virtual environment with the packages of a Python client, if it is not there yet, and leaves its interpreter in
# `python`; without Python or the network the suite is skipped: python_environment grpcio|python-consul|axe
python_environment() {
    local name=$1 version module packages must_run environment check
    case $name in
    grpcio)
        version=1.76.0 module=grpc_tools must_run=${HEADWATER_REQUIRE_GRPCIO:-0}
        packages=("grpcio==$version" "grpcio-tools==$version")
        ;;
    python-consul)
        version=1.1.0 module=consul must_run=${HEADWATER_REQUIRE_PYTHON_CONSUL:-0}
        packages=("python-consul==$version")
        ;;
    axe)
        # The package has axe-core as one file; its own dependencies drive another browser.
        version=0.1.8 module=axe_playwright_python must_run=${HEADWATER_REQUIRE_CHROMIUM:-0}
        check="import importlib.util as util; assert util.find_spec('$module')"
        packages=(--no-deps "axe-playwright-python==$version")
        ;;
    *) die "no Python environment is called $name" ;;
    esac
    environment=$CACHE_DIR/$name-$version
    python=$environment/bin/python
    if "$python" -c "${check:-import $module}" 2>/dev/null; then
        return
    fi
    command -v python3 >/dev/null || skip "$must_run" "there is no python3"
    say "installing ${packages[*]} into $environment"
    rm -rf -- "$environment"
    mkdir -p -- "$CACHE_DIR"
    python3 -m venv "$environment" >&2 ||
        skip "$must_run" "python3 cannot make virtual environments (Debian: python3-venv)"
    "$python" -m pip install --quiet --disable-pip-version-check "${packages[@]}" >&2 ||
        skip "$must_run" "${packages[*]} cannot be installed"
}

in_root() {
    (cd "$ROOT" && "$@")
}

binary() {
    local program=$CARGO_TARGET_DIR/debug/headwater
    [[ ${HEADWATER_PROFILE:-} != guided ]] || program=$CARGO_TARGET_DIR/guided/bin/headwater
    printf '%s\n' "${HEADWATER_BIN:-$program}"
}

# How often the program takes which branch, as scripts/train has recorded it, and the versions that it is for.
PROFILE_DATA=$ROOT/benches/guided.profdata.xz
PROFILE_VERSIONS=$ROOT/benches/guided.versions

# Runs cargo with one more flag for the compiler, in a folder below the usual one: the flag makes other Rust libraries. RocksDB is
# C++: its library is reused. The Rust libraries do not check for overflow, as in every release build; the crates of the project
# do. cargo_with_flag FOLDER FLAG COMMAND …
cargo_with_flag() {
    local folder=$CARGO_TARGET_DIR/$1 flag=$2 library
    shift 2
    [[ -z ${RUSTFLAGS:-}${CARGO_ENCODED_RUSTFLAGS:-} ]] || die "unset RUSTFLAGS: it takes the place of this build's flags"
    library=$(rocksdb_library)
    if [[ -z $library ]]; then
        say "building without the flag first, because RocksDB is compiled once"
        in_root cargo optimised --locked -p headwater >&2
        library=$(rocksdb_library)
        [[ -n $library ]] || die "there is no library of RocksDB below $CARGO_TARGET_DIR/debug/build"
    fi
    ROCKSDB_STATIC=1 ROCKSDB_LIB_DIR=$(dirname -- "$library") CARGO_TARGET_DIR=$folder \
        in_root cargo --config "target.'cfg(all())'.rustflags = ['$flag']" \
        --config 'profile.dev.package."*".overflow-checks = false' "$@" >&2
}

# A RocksDB library of the locked version in the usual folder; nothing if none was compiled to its end.
rocksdb_library() {
    local version library
    version=$(awk '/^name = "librocksdb-sys"/ { getline; gsub(/"/, "", $3); print $3 }' "$ROOT/Cargo.lock")
    for library in "$CARGO_TARGET_DIR"/debug/build/librocksdb-sys-*/out/librocksdb.a; do
        # The last line that the build script prints.
        if grep --quiet --no-messages "^cargo:cargo_manifest_dir=.*/librocksdb-sys-$version\$" "${library%/out/*}/output"; then
            printf '%s' "$library"
            return
        fi
    done
}

# The versions on which the names of all functions depend: counts that were recorded with others are not found.
profile_versions() {
    (cd "$ROOT" && rustc -vV | grep -E '^(host|release):')
    sed -n 's/^version = "\(.*\)"/headwater: \1/p' "$ROOT/Cargo.toml" | head -n 1
}

# Post-link optimisation: Debian's bolt-19. By this path, because it looks for the library that counts beside itself.
BOLT=/usr/lib/llvm-19/bin/llvm-bolt

# Builds the program with the recorded profile. Lays its code out if BOLT is installed or can be.
build_guided() {
    local data relocations=() linked=$CARGO_TARGET_DIR/guided/debug/headwater
    need_packages xz-utils
    if [[ $(profile_versions) != "$(<"$PROFILE_VERSIONS")" ]]; then
        say "the profile was recorded with other versions, so most of it has no effect: run scripts/train"
    fi
    # Named after its content: cargo compiles anew when a flag changes, not when a file does.
    data=$CARGO_TARGET_DIR/guided/$(sha256sum -- "$PROFILE_DATA" | cut -c 1-16).profdata
    if [[ ! -f $data ]]; then
        mkdir -p -- "$CARGO_TARGET_DIR/guided"
        xz --decompress --stdout -- "$PROFILE_DATA" >"$data.part"
        mv -- "$data.part" "$data"
    fi
    if [[ -x $BOLT ]] || (need_packages bolt-19); then
        # BOLT moves functions only if the linker keeps the relocations.
        relocations=(-C link-arg=-Wl,--emit-relocs)
    else
        say "BOLT (bolt-19) is not installed: the program's code stays in the order in which it was linked, and is slower"
    fi
    cargo_with_flag guided "-Cprofile-use=$data" program "${relocations[@]}"
    # Cargo knows nothing of what follows; builds of several clones take turns.
    mkdir -p -- "$CARGO_TARGET_DIR/guided/bin"
    (
        flock 9
        lay_out "$linked" "$CARGO_TARGET_DIR/guided/bin/headwater" "${#relocations[@]}"
    ) 9>"$CARGO_TARGET_DIR/guided/layout.lock"
}

# Writes program $1 to $2 unless it is there: laid out by scripts/layout, or as it is if $3 is 0.
lay_out() {
    local stamp
    stamp=$(
        stat --format '%i %s %Y' -- "$1"
        printf '%s\n' "$3"
        sha256sum <"$ROOT/scripts/layout"
        sha256sum <"$ROOT/scripts/training.sh"
    )
    if [[ -x $2 && -f $2.stamp && $(<"$2.stamp") == "$stamp" ]]; then
        return
    fi
    if [[ $3 -eq 0 ]]; then
        cp -- "$1" "$2.part"
        mv -- "$2.part" "$2"
    else
        "$ROOT/scripts/layout" "$1" "$2" 9>&- ||
            die "the program was linked, but its code was not laid out; to use it as it is, set HEADWATER_BIN=$1"
    fi
    printf '%s\n' "$stamp" >"$2.stamp"
}

# Builds the program unless HEADWATER_BIN names one: without link-time optimisation if HEADWATER_PROFILE is `optimised`, and also by
# recorded profiles if it is `guided`.
build() {
    if [[ -n ${HEADWATER_BIN:-} ]]; then
        [[ -x $HEADWATER_BIN ]] || die "HEADWATER_BIN is $HEADWATER_BIN, which cannot be run"
        return
    fi
    local command minutes
    case ${HEADWATER_PROFILE:-program} in
    program) command=(program) minutes=40 ;;
    optimised) command=(optimised --locked -p headwater) minutes=30 ;;
    guided) command=() minutes=70 ;;
    *) die "HEADWATER_PROFILE is $HEADWATER_PROFILE; it must be program, optimised (built sooner) or guided (fastest)" ;;
    esac
    "$ROOT/scripts/setup" build
    need_rust
    if [[ ! -x $(binary) ]]; then
        say "building; the first time takes about $minutes minutes on two cores, 15 of them for RocksDB"
    fi
    if [[ ${HEADWATER_PROFILE:-} == guided ]]; then
        build_guided
    else
        in_root cargo "${command[@]}" >&2
    fi
}

# Builds a program that tests the other one, and prints where it is: build_tool chaos, build_tool fuzz. Both have the features of
# `headwater` for all dependencies: none is compiled twice.
build_tool() {
    "$ROOT/scripts/setup" build >&2
    need_rust
    in_root cargo optimised --locked -p headwater -p "headwater-$1" --bin "$1" >&2
    printf '%s\n' "$CARGO_TARGET_DIR/debug/$1"
}

# Builds this version's program, the one that plays the next version, and the program of chaos, unless HEADWATER_BIN,
# HEADWATER_NEXT and HEADWATER_CHAOS name them; sets all three.
build_two_versions() {
    local programs=$CARGO_TARGET_DIR/versions
    if [[ -z ${HEADWATER_BIN:-} || -z ${HEADWATER_NEXT:-} || -z ${HEADWATER_CHAOS:-} ]]; then
        "$ROOT/scripts/setup" build
        if [[ $(id -u) -eq 0 ]]; then
            "$ROOT/scripts/setup" chaos || say "what cannot be installed is skipped"
        fi
        need_rust
        mkdir -p -- "$programs"
        # Beside each other the second build would take the place of the first. Versions are not compared for speed: link-time
        # optimisation would cost each of them eight minutes.
        in_root cargo optimised --locked -p headwater >&2
        cp -- "$CARGO_TARGET_DIR/debug/headwater" "$programs/this"
        in_root cargo optimised --locked -p headwater -p headwater-chaos \
            --features headwater/next-version,headwater-chaos/next-version >&2
        cp -- "$CARGO_TARGET_DIR/debug/headwater" "$programs/next"
        cp -- "$CARGO_TARGET_DIR/debug/chaos" "$programs/chaos"
    fi
    export HEADWATER_BIN=${HEADWATER_BIN:-$programs/this} HEADWATER_NEXT=${HEADWATER_NEXT:-$programs/next}
    HEADWATER_CHAOS=${HEADWATER_CHAOS:-$programs/chaos}
}

# The endpoints of the local cluster, separated by commas.
endpoints() {
    local node list=()
    for node in "${NODES[@]}"; do
        list+=("127.0.0.1:${CLIENT_PORTS[node]}")
    done
    local IFS=,
    printf '%s\n' "${list[*]}"
}

# How each node stands, as "endpoint id name version role …" lines; nodes that do not answer have no role.
standing() {
    "$(binary)" status --endpoints "$(endpoints)" --timeout 5s 2>/dev/null || true
}

# How the local cluster is spoken to by hand, wherever a script has put it.
cluster_command() {
    local name settings=""
    for name in HEADWATER_PORT_OFFSET HEADWATER_RUN_DIR; do
        if [[ -n ${!name:-} ]]; then
            settings+=$(printf '%s=%q ' "$name" "${!name}")
        fi
    done
    printf '%s\n' "${settings}scripts/cluster"
}

# The endpoint of the node that leads, once one does; fails, with the reason, if none does for a minute.
leader_endpoint() {
    once_known "no node leads" leader_now
}

# The endpoint of a node that follows, likewise; not the one given if there is a choice.
follower_endpoint() {
    once_known "no node follows" follower_now "${1:-}"
}

# Prints what `command` prints once that is something; if that takes a minute, says why not and fails: once_known WHY-NOT command …
once_known() {
    local why_not=$1 deadline=$((SECONDS + 60)) known
    shift
    until known=$("$@") && [[ -n $known ]]; do
        if ((SECONDS >= deadline)); then
            # The logs are there, too, when whoever asked has stopped the nodes.
            say "$why_not, or none answers; see $(cluster_command) logs 1"
            return 1
        fi
        sleep 0.1
    done
    printf '%s\n' "$known"
}

# The endpoint of the node that leads; nothing if none does.
leader_now() {
    standing | awk -F', ' '$5 == "leader" { print $1; exit }'
}

# The endpoint of a node that follows, likewise.
follower_now() {
    standing | awk -F', ' -v avoid="${1:-}" '$5 == "follower" { if ($1 != avoid) { print $1; found = 1; exit } last = $1 }
        END { if (!found && last != "") print last }'
}

# Waits until `command` succeeds or the time (seconds) is over: wait_for SECONDS command …
wait_for() {
    local deadline=$((SECONDS + $1))
    shift
    until "$@"; do
        if ((SECONDS >= deadline)); then
            return 1
        fi
        sleep 0.1
    done
}
