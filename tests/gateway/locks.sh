# Locks and elections. Their keys end in the lease, so it is given: 4d is 77. Nobody locks twice: etcd leaves the key as it is then,
# Headwater writes it anew (docs/locks.md).
# Sourced by scripts/test-gateway, which defines `post` (one request, one answer), `lines` (a stream, and how many lines
# of it) and `quietly`.
# shellcheck shell=bash

quietly /v3/lease/grant '{"TTL":60,"ID":77}'
quietly /v3/lease/grant '{"TTL":60,"ID":78}'
post /v3/lock/lock '{"name":"bQ==","lease":77}'
post /v3/lock/unlock '{"key":"bS80ZA=="}'
post /v3/lock/lock '{"name":"bQ==","lease":78}'
post /v3/election/leader '{"name":"ZQ=="}'
post /v3/election/campaign '{"name":"ZQ==","lease":77,"value":"YQ=="}'
post /v3/election/leader '{"name":"ZQ=="}'
lines 1 /v3/election/observe '{"name":"ZQ=="}'
post /v3/election/proclaim '{}'
post /v3/election/resign '{}'
