# Users, roles and rights at etcdctl, in order, on an empty cluster of three: the tour of etcd's guide to
# authentication, and what is refused. Sourced by scripts/test-etcdctl, which defines `e` (run etcdctl) and `with` (run
# it with this text on standard input).
# shellcheck shell=bash

ROOT_USER=(--user=root:rootpw)

# Before it is on: nobody is asked, and what cannot be is refused.
e auth enable
e user add root:rootpw
e user add root:rootpw
e user get root
e user get nobody
e role add guest
e role add guest
e role get guest
e role get nothing
e role list
e user list
e role delete nothing
e user delete nobody
e user grant-role root nothing
e user revoke-role root guest
e user grant-role nobody guest
e --user=root:rootpw get a

# Permissions: keys, intervals, prefixes, and open ends.
e role grant-permission guest read foo
e role grant-permission guest readwrite bar
e role grant-permission guest write w1 w5
e role grant-permission guest read p/ --prefix
e role grant-permission guest read z --from-key
e role grant-permission nothing read foo
e role get guest
e role get guest -w json
e role grant-permission guest readwrite p/ --prefix
e role get guest
e role revoke-permission guest w1
e role revoke-permission guest w1 w5
e role revoke-permission guest z --from-key
e role revoke-permission guest z --from-key
e role get guest
with 'alicepw' user add alice --interactive=false
e user add bob --new-user-password=bobpw
e user grant-role alice guest
e user grant-role alice guest
e user get alice
e user get alice --detail
e user get alice -w json
e put foo 1
e put bar 2
e put other 3
e put p/1 4

# On: etcdctl gives root its role.
e auth enable
e user get root
e role get root
e put foo 2
e get foo
e --user=root:wrong get foo
e --user=nobody:x get foo
e "${ROOT_USER[@]}" get foo
e "${ROOT_USER[@]}" auth enable
e --user=alice:alicepw get foo
e --user=alice:alicepw put foo 3
e --user=alice:alicepw put bar 3
e --user=alice:alicepw put bar 4 --prev-kv
e --user=alice:alicepw get other
e --user=alice:alicepw get "" --prefix
e --user=alice:alicepw get p/ --prefix
e --user=alice:alicepw get p/ --from-key
e --user=alice:alicepw get p/1 p/9
e --user=alice:alicepw del other
e --user=alice:alicepw del p/1
e --user=bob:bobpw get foo
e --user alice --password alicepw get bar
with $'value("foo") = "1"\n\nput bar 5\n\nget bar\n\n' --user=alice:alicepw txn
with $'value("other") = "3"\n\nput bar 5\n\nget bar\n\n' --user=alice:alicepw txn
with $'\nput bar 5\n\nput other 5\n\n' --user=alice:alicepw txn
e --user=alice:alicepw user list
e --user=alice:alicepw user get alice
e --user=alice:alicepw user get root
e --user=alice:alicepw role list
e --user=alice:alicepw role get guest
e --user=alice:alicepw role get root
e --user=alice:alicepw role grant-permission guest readwrite other
e --user=alice:alicepw auth disable
e --user=alice:alicepw alarm disarm
e --user=alice:alicepw defrag

# Changes of users and roles while it is on.
e "${ROOT_USER[@]}" user delete root
e "${ROOT_USER[@]}" role delete root
e "${ROOT_USER[@]}" user revoke-role root root
with 'newpw' "${ROOT_USER[@]}" user passwd alice --interactive=false
e --user=alice:alicepw get foo
e --user=alice:newpw get foo
e "${ROOT_USER[@]}" role revoke-permission guest foo
e --user=alice:newpw get foo
e "${ROOT_USER[@]}" user revoke-role alice guest
e "${ROOT_USER[@]}" user get alice
e --user=alice:newpw get bar
e "${ROOT_USER[@]}" user grant-role bob guest
e "${ROOT_USER[@]}" role delete guest
e "${ROOT_USER[@]}" user get bob
e "${ROOT_USER[@]}" user delete bob
e "${ROOT_USER[@]}" user list
e "${ROOT_USER[@]}" role list
e --user=bob:bobpw get bar

# Off again.
e auth disable
e "${ROOT_USER[@]}" auth disable
e get foo
e "${ROOT_USER[@]}" get foo
e user list
