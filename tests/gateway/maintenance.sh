# How a node stands.
# Sourced by scripts/test-gateway, which defines `post` (one request, one answer), `lines` (a stream, and how many lines
# of it) and `quietly`.
# shellcheck shell=bash

quietly /v3/kv/put '{"key":"Zm9v","value":"YmFy"}'
post /v3/maintenance/status '{}'
post /v3/maintenance/status '[]'
post /v3/maintenance/hash '{}'
post /v3/cluster/member/list '{}'
post /v3/maintenance/nothing '{}'
post /v3/maintenance/status '' --request GET

# A user, where nobody is asked who they are
post /v3/auth/authenticate '{"name":"root","password":"secret"}'
