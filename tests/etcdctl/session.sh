# What a person may type at etcdctl, in order, on an empty cluster of three. Sourced by scripts/test-etcdctl, which
# defines `e` (run etcdctl) and `with` (run it with this text on standard input).
# shellcheck shell=bash

# Single keys
e put a 1
e put a 2
e put a 3 --prev-kv
e get a
e get a -w json
e get a -w fields
e get a --rev=2
e get a --rev=3 --print-value-only
e get missing
e get missing -w json
with "from standard input" put piped
e get piped
e put -- -dash -value
e get -- -dash
e put empty ""
e get empty -w json
e put umlaut 'grün
zwei Zeilen'
e get umlaut --hex

# Ranges
e put k/1 one
e put k/2 two
e put k/3 three
e put k/2 zwei
e get k/ --prefix
e get k/ --prefix --keys-only
e get k/ --prefix --limit=2 -w json
e get k/1 k/3
e get k/2 --from-key --keys-only
e get "" --prefix --keys-only
e get "" --from-key --limit=1
e get k/ --prefix --sort-by=modify --order=descend --keys-only
e get k/ --prefix --sort-by=create --keys-only
e get k/ --prefix --sort-by=version --order=ascend --keys-only
e get k/ --prefix --sort-by=value --print-value-only
e get k/ --prefix --sort-by=key --order=descend --keys-only
e get k/3 k/1
e get k/ --prefix --consistency=s -w json

# Removing
e del missing
e del k/1 --prev-kv
e del k/ --prefix --prev-kv
e get k/ --prefix -w json
e del umlaut -w json
e get umlaut --rev=9 --print-value-only

# What put keeps
e put a --ignore-value
e get a -w json
e put missing --ignore-value
e put a --ignore-lease 4
e put missing --ignore-lease x
e put a 5 --lease=1234

# Transactions
with 'mod("a") > "0"

put a yes
get a

put a no

' txn
with 'value("a") = "no"

put a then

get a
del a --prev-kv
put b else
get a

' txn
with 'create("never") = "0"
version("never") = "0"
mod("never") < "1"

put never now
get never


' txn -w json
with 'val("b") != "else"

del b


' txn
with '
get b
put c 1
get c


' txn
with 'mod("b") > "x"

' txn
with 'mdo("b") > "1"

' txn
with '
put twice 1
put twice 2


' txn
with '
put twice 1
del twice


' txn
with '
del twice
del twice


' txn
with '
get a --rev=100000


' txn
e get twice -w json

# Wrong requests
e put "" x
e get ""
e del ""
e get a --rev=100000
e compaction 100000
e get a z --sort-by=nothing

# Compaction
e compaction 10
e get a --rev=9
e get a --rev=10 --print-value-only
e compaction 10
e compaction 9
e compaction 12 --physical
e get a --rev=11
with '
get a --rev=5


' txn

# A user, where nobody is asked who they are
e --user root:secret put user 1
e --user root:secret get user

# The cluster
e member list
e endpoint health
e endpoint status
