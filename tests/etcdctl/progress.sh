# What a watch tells of itself while nothing happens: `etcdctl watch --progress-notify`, on an empty cluster of three
# that notifies several times a second. How often is a matter of time, so that of the same notification only the first
# counts. Sourced by scripts/test-etcdctl, as watch.sh is.
# shellcheck shell=bash disable=SC2034

ETCDCTL=$(newer_etcdctl)
OUTPUT=progress_once

scenario "One key"
watch a --progress-notify
shows 1
e put a 1
shows 4
e put b 1
shows 1
e del a
shows 4
stop

scenario "A prefix, with the previous values"
watch p/ --prefix --prev-kv --progress-notify
shows 1
e put p/1 one
shows 4
with '
put p/1 eins
put p/2 zwei


' txn
shows 9
e del p/ --prefix
shows 11
stop

scenario "As JSON"
watch a --progress-notify -w json
shows 2
e put a 2
shows 3
e put b 2
shows 2
stop

scenario "From a revision in the past: the events first, then how far they came"
watch a --rev=2 --progress-notify
shows 10
e put a 3
shows 4
stop

scenario "From a revision in the past, as JSON"
watch a --rev=2 --progress-notify -w json
shows 3
stop
