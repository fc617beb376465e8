# What a person may watch, in every mode that etcdctl has, on an empty cluster of three: first the watch, which runs on
# every node, then what is written, command by command on the next node, and how many lines each watcher must print for
# it. Sourced by scripts/test-etcdctl, which defines `e` and `with`; scripts/watchers.sh defines the rest.
# shellcheck shell=bash

# The revision that the cluster is at.
revision() {
    etcdctl --endpoints "127.0.0.1:${CLIENT_PORTS[1]}" get revision -w json | sed -E 's/.*"revision":([0-9]+).*/\1/'
}

scenario "One key: its neighbours, and keys that it is a prefix of, stay out"
watch a
e put a 1
shows 3
e put a0 x
e put b x
e del b
e put a 2
shows 3
e put a 2
shows 3
e put a --ignore-value
shows 3
e put a ""
shows 3
e del a
shows 3
e del a
e put a 'grün
zwei Zeilen'
shows 4
stop

scenario "A prefix, with the previous values"
watch p/ --prefix --prev-kv
e put p/1 one
shows 3
e put p 0
e put p0 0
e put p/2 two
shows 3
e put p/1 eins
shows 5
e del p/2
shows 5
e del p/2
e put p/ itself
shows 3
e del p/ --prefix
shows 10
stop

scenario "The previous value of one key, as JSON"
watch a --prev-kv -w json
e put a again
shows 1
e del a
shows 1
e put a anew
shows 1
stop

scenario "A range: its start is in, its end is out"
watch r/2 r/4
e put r/1 1
e put r/2 2
shows 3
e put r/3 3
shows 3
e put r/4 4
e del r/ --prefix
shows 6
e put r/3 again
shows 3
stop

scenario "Every key"
watch "" --prefix
e put -- -first 1
shows 3
e put zzz 2
shows 3
e del zzz
shows 3
stop

scenario "Several keys in one revision, as text"
watch t/ --prefix
with 'mod("t/1") = "0"

put t/3 three
put t/1 one
put other x
put t/2 two

put t/no no

' txn
shows 9
with 'mod("t/1") = "0"

put t/no no

del t/2
put t/2x new
get t/1

' txn
shows 6
e del t/ --prefix
shows 9
stop

scenario "Several keys in one revision: one answer, as JSON"
watch t/ --prefix --prev-kv -w json
with '
put t/3 three
put t/1 one
put other x
put t/2 two


' txn
shows 1
with '
del t/ --prefix
put u x


' txn
shows 1
with '
put t/1 one
put t/2 two


' txn
shows 1
e del t/ --prefix
shows 1
stop

scenario "What writes nothing is not shown"
watch n/ --prefix -w json
e del n/ --prefix
with '
get n/1


' txn
e put n/1 now
shows 1
stop

scenario "In hexadecimal"
watch h/ --prefix --hex --prev-kv
e put h/1 'grün'
shows 3
e put h/1 x
shows 5
e del h/1
shows 5
stop

scenario "As fields"
watch f/ --prefix -w fields --prev-kv
e put f/1 one
shows 11
e del f/1
shows 17
stop

scenario "As a table, which etcdctl does not have for watches"
watch f/ --prefix -w table
e put f/2 two
ends

scenario "A history to watch from later"
past=$(revision)
e put v/1 one
e put v/2 two
e put v/1 eins
with '
put v/3 three
put v/2 zwei


' txn
e del v/ --prefix
e put v/1 again

scenario "From a revision in the past"
watch v/1 --rev="$((past + 1))"
shows 12
e put v/1 live
shows 3
stop

scenario "From a revision in the past, a prefix, with the previous values"
watch v/ --prefix --rev="$((past + 2))" --prev-kv
shows 39
e put v/4 live
shows 3
e del v/1
shows 5
stop

scenario "From a revision in the past, as JSON: one answer, at the revision of now"
watch v/ --prefix --rev="$((past + 1))" -w json
shows 1
e put v/4 still
shows 1
stop

scenario "From a revision in the past, with the previous values, as JSON"
watch v/ --prefix --rev="$((past + 1))" --prev-kv -w json
shows 1
e del v/4
shows 1
stop

scenario "From a revision in the past in which nothing was written to the key"
watch w --rev=2 -w json
e put w 1
shows 1
stop

scenario "From the present revision"
e put w 2
watch w --rev="$(revision)" -w json
shows 1
e put w 3
shows 1
stop

scenario "From the next revision"
watch w --rev="$(($(revision) + 1))" -w json
e put w 4
shows 1
e put w 5
shows 1
stop

scenario "From a revision in the future"
watch w --rev="$(($(revision) + 3))" -w json
e put w 6
e put w 7
e put w 8
shows 1
e del w
shows 1
stop

scenario "A program for each event"
watch x/ --prefix -- sh -c 'echo saw; env | grep ^ETCD_WATCH_ | sort'
e put x/1 'one "quoted"'
shows 8
with '
put x/2 two
put x/3 three


' txn
shows 16
e del x/1
shows 8
stop

scenario "A program, from a revision in the past"
# shellcheck disable=SC2016 # the program of the watch expands them
watch --rev="$(($(revision) - 1))" --prefix x/ -- sh -c 'echo $ETCD_WATCH_REVISION $ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY'
shows 12
e put x/4 four
shows 4
stop

scenario "A program that fails ends the watch"
watch x/5 -- sh -c 'exit 7'
e put x/5 five
ends

scenario "Interactive: several watches on one connection, and progress"
interact
types "watch i" 1
e put i 1
shows 3
types "progress"
shows 1
types "watch j/ --prefix --prev-kv" 1
e put j/1 1
shows 3
e put j/1 2
shows 5
e put i 2
shows 3
types "progress"
shows 2
types "watch v/2 --rev=$((past + 1))" 1
shows 9
e put v/2 three
shows 3
types "progress"
shows 3
stop

scenario "Interactive: progress moves with writes to other keys"
interact
types "watch i" 1
e put i 4
shows 3
e put elsewhere 1
e put elsewhere 2
e put i 5
shows 3
types progress
shows 1
types progress
shows 1
stop

scenario "Interactive, as JSON"
interact -w json
types "watch i" 1
e put i 6
shows 1
types progress
shows 2
types "watch k l --prev-kv" 1
e put k 1
shows 1
e del k
shows 1
e put i 7
shows 1
stop

scenario "Interactive: a program for each event"
interact
types "watch i -- printenv ETCD_WATCH_KEY ETCD_WATCH_VALUE" 1
e put i 8
shows 5
stop

scenario "Interactive: what is not understood, and the end of the input"
interact
types ""
complains 1
types "put i 9"
complains 1
types "watch"
complains 1
types "watch i" 1
e put i 9
shows 3
hangs_up
ends

scenario "An interval that is empty"
watch_briefly b a
ends

scenario "Arguments that contradict each other"
watch_briefly a b --prefix
ends

scenario "No key"
watch_briefly
ends

scenario "Compaction does not end a watch of the present"
e put c 1
e put c 2
watch c -w json
e put c 3
shows 1
point=$(revision)
e compaction "$point"
e put c 4
shows 1
stop

scenario "From exactly the compaction point"
watch c --rev="$point"
shows 6
e put c 5
shows 3
stop

scenario "From exactly the compaction point, with the previous values: that of the first is gone"
watch c --rev="$point" --prev-kv -w json
shows 1
stop

scenario "From a compacted revision"
watch_briefly c --rev="$((point - 1))"
ends

scenario "From a compacted revision, a prefix, as JSON"
watch_briefly c --prefix --rev=1 -w json
ends

scenario "From a compacted revision, interactive: the other watches go on"
interact
types "watch c" 1
e put c 6
shows 3
types "watch c --rev=2"
complains 1
e put c 7
shows 3
stop
