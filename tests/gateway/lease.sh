# Leases.
# Sourced by scripts/test-gateway, which defines `post` (one request, one answer), `lines` (a stream, and how many lines
# of it) and `quietly`.
# shellcheck shell=bash

post /v3/lease/grant '{"TTL":60,"ID":77}'
post /v3/lease/grant '{"TTL":"60","ID":"77"}'
post /v3/lease/grant '{"TTL":"90000000000","ID":78}'
post /v3/kv/put '{"key":"Zm9v","value":"YmFy","lease":"77"}'
post /v3/kv/put '{"key":"Zm9w","value":"YmFy","lease":77}'
post /v3/kv/range '{"key":"Zm9v"}'
post /v3/lease/timetolive '{"ID":77}'
post /v3/lease/timetolive '{"ID":"77","keys":true}'
post /v3/kv/lease/timetolive '{"ID":77,"keys":false}'
post /v3/lease/timetolive '{"ID":1}'
post /v3/lease/leases '{}'
post /v3/kv/lease/leases ''

# Streams that end with their request
post /v3/lease/keepalive '{"ID":77}'
post /v3/lease/keepalive '{"ID":77}{"ID":"77"} {"ID":1}'
post /v3/lease/keepalive ''

post /v3/lease/revoke '{"ID":77}'
post /v3/lease/revoke '{"ID":77}'
post /v3/kv/lease/revoke '{"ID":77}'
post /v3/kv/range '{"key":"Zm9v"}'
post /v3/lease/leases '{}'
post /v3/lease/grant '[]'
post /v3/lease/nothing '{}'
