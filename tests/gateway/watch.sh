# Watches.
# Sourced by scripts/test-gateway, which defines `post` (one request, one answer), `lines` (a stream, and how many lines
# of it) and `quietly`.
# shellcheck shell=bash

quietly /v3/kv/put '{"key":"Zm9v","value":"MQ=="}'
quietly /v3/kv/put '{"key":"Zm9v","value":"Mg=="}'
quietly /v3/kv/put '{"key":"YmFy","value":"MQ=="}'
quietly /v3/kv/deleterange '{"key":"Zm9v"}'

# From now on, and from the past
lines 1 /v3/watch '{"create_request":{"key":"Zm9v"}}'
lines 2 /v3/watch '{"create_request":{"key":"Zm9v","start_revision":"2"}}'
lines 2 /v3/watch '{"createRequest":{"key":"Zm9v","startRevision":3,"prevKv":true}}'
lines 2 /v3/watch '{"create_request":{"key":"AA==","range_end":"AA==","start_revision":2,"filters":["NODELETE"]}}'
lines 2 /v3/watch '{"create_request":{"key":"AA==","range_end":"AA==","start_revision":2,"filters":[0],"watch_id":"9"}}'
lines 1 /v3/watch '{"create_request":{"key":"Zm9v","start_revision":"99"}}'

# Several requests
lines 3 /v3/watch '{"create_request":{"key":"Zm9v"}}{"create_request":{"key":"YmFy"}} {"create_request":{"key":"YQ==","watch_id":5}}'
lines 2 /v3/watch '{"create_request":{"key":"Zm9v","watch_id":3}} {"cancel_request":{"watch_id":3}}'
lines 2 /v3/watch '{"create_request":{"key":"Zm9v","watch_id":3}} {"create_request":{"key":"YmFy","watch_id":3}}'

# What cannot be watched
quietly /v3/kv/compaction '{"revision":"4","physical":true}'
lines 2 /v3/watch '{"create_request":{"key":"Zm9v","start_revision":"2"}}'
post /v3/watch '' --request GET
post /v3/watch/x '{}'

# Until a time
post /v3/watch '{"create_request":{"key":"Zm9v"}}' --header 'Grpc-Timeout: 5S'
