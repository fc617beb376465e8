# Alarms and defragmentation.
# Sourced by scripts/test-gateway, which defines `post` (one request, one answer), `lines` (a stream, and how many lines
# of it) and `quietly`.
# shellcheck shell=bash

# Later etcds than 3.4 put a header in front.
alarm() {
    post /v3/maintenance/alarm "$1" | sed -E 's/^\{"header":\{[^}]*\},?/{/'
    # The pipe counts in a process of its own.
    count=$((count + 1))
}

alarm '{}'
alarm '{"action":"GET","alarm":"NOSPACE"}'
alarm '{"action":"ACTIVATE","memberID":"7","alarm":"NOSPACE"}'
post /v3/kv/put '{"key":"Zm9v","value":"YmFy"}'
post /v3/kv/range '{"key":"Zm9v"}'
alarm '{"action":"GET"}'
alarm '{"action":2,"memberID":7,"alarm":1}'
post /v3/kv/put '{"key":"Zm9v","value":"YmFy"}'
alarm '{"action":"RAISE"}'
post /v3/maintenance/defragment '{}'
