# Changes of membership that are refused.
# Sourced by scripts/test-gateway, which defines `post` (one request, one answer), `lines` (a stream, and how many lines
# of it) and `quietly`.
# shellcheck shell=bash

post /v3/cluster/member/add '{"peerURLs":["not a url"]}'
post /v3/cluster/member/remove '{"ID":99}'
post /v3/cluster/member/update '{"ID":99,"peerURLs":["http://127.0.0.1:1"]}'
post /v3/cluster/member/promote '{"ID":99}'
