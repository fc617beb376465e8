# Reads and writes. zoo is em9v, foo is Zm9v, fop is Zm9w, bar is YmFy, baz is YmF6.
# Sourced by scripts/test-gateway, which defines `post` (one request, one answer), `lines` (a stream, and how many lines
# of it) and `quietly`.
# shellcheck shell=bash

# One key
post /v3/kv/put '{"key":"Zm9v","value":"YmFy"}'
post /v3/kv/put '{"key":"Zm9v","value":"YmF6","prev_kv":true}'
post /v3/kv/range '{"key":"Zm9v"}'
post /v3/kv/range '{"key":"Zm9v","serializable":true}'
post /v3/kv/range '{"key":"Zm9v","revision":2}'
post /v3/kv/range '{"key":"Zm9v","revision":"2"}'
post /v3/kv/range '{"key":"YWJzZW50"}'
post /v3/kv/put '{"key":"ZW1wdHk="}'
post /v3/kv/range '{"key":"ZW1wdHk="}'
post /v3/kv/put '{"key":"Zm9v","ignore_value":true}'
post /v3/kv/put '{"key":"AP/+","value":"/w=="}'
post /v3/kv/range '{"key":"AP/+"}'

# Intervals
post /v3/kv/put '{"key":"Zm9vMQ==","value":"MQ=="}'
post /v3/kv/put '{"key":"Zm9vMg==","value":"Mg=="}'
post /v3/kv/range '{"key":"Zm9v","range_end":"Zm9w"}'
post /v3/kv/range '{"key":"Zm9v","rangeEnd":"Zm9w","countOnly":true}'
post /v3/kv/range '{"key":"Zm9v","range_end":"Zm9w","keys_only":true,"limit":"1"}'
post /v3/kv/range '{"key":"Zm9v","range_end":"Zm9w","limit":2,"sort_order":"DESCEND","sort_target":"MOD"}'
post /v3/kv/range '{"key":"Zm9v","range_end":"Zm9w","sort_order":2,"sort_target":4,"keys_only":true}'
post /v3/kv/range '{"key":"AA==","range_end":"AA==","keys_only":true}'
post /v3/kv/range '{"key":"Zm9v","range_end":"Zm9w","min_mod_revision":6,"max_create_revision":"9"}'

# What is ignored, and the older name of the paths
post /v3/kv/range '{"key":"Zm9v","unknown":{"a":[1,null]},"limit":null}'
post /v3/kv/range ' {"key" : "Zm9v"} ' --header 'Content-Type: text/plain'
post /v3beta/kv/range '{"key":"Zm9v"}'
post '/v3/kv/range?key=eA==' '{"key":"Zm9v"}'

# Transactions
post /v3/kv/txn '{"compare":[{"key":"Zm9v","target":"VALUE","value":"YmF6"}],"success":[{"request_put":{"key":"Zm9v","value":"YQ=="}},{"request_range":{"key":"Zm9v"}},{"requestDeleteRange":{"key":"Zm9vMQ==","prev_kv":true}}]}'
post /v3/kv/txn '{"compare":[{"key":"Zm9v","target":"CREATE","result":"GREATER","create_revision":"9"}],"failure":[{"request_txn":{"success":[{"request_range":{"key":"Zm9v"}}]}}]}'
post /v3/kv/txn '{"compare":[{"key":"Zm9v","target":2,"result":2,"modRevision":99}]}'
post /v3/kv/txn '{"compare":[{"key":"Zm9v","target":"VERSION","result":"NOT_EQUAL","version":0}]}'
post /v3/kv/txn '{}'
post /v3/kv/txn '{"success":[{}]}'
post /v3/kv/txn '{"success":[{"request_put":{"key":"YQ=="}},{"request_put":{"key":"YQ=="}}]}'

# Removal and compaction
post /v3/kv/deleterange '{"key":"Zm9v","prev_kv":true}'
post /v3/kv/deleterange '{"key":"Zm9v"}'
post /v3/kv/deleterange '{"key":"Zm9v","range_end":"Zm9w"}'
post /v3/kv/compaction '{"revision":"4"}'
post /v3/kv/compaction '{"revision":"4"}'
post /v3/kv/compaction '{"revision":"400"}'
post /v3/kv/range '{"key":"Zm9v","revision":"2"}'
post /v3/kv/range '{"key":"Zm9v","revision":"99"}'

# Refusals by the store
post /v3/kv/range '{}'
post /v3/kv/range ''
post /v3/kv/range 'null'
post /v3/kv/put '{"value":"YQ=="}'
post /v3/kv/put '{"key":"YQ==","lease":5}'
post /v3/kv/put '{"key":"YQ==","value":"YQ==","ignore_value":true}'
post /v3/kv/put '{"key":"YWJzZW50","ignore_value":true}'
post /v3/kv/deleterange '{}'

# Refusals by the gateway
post /v3/kv/range 'x'
post /v3/kv/range '{"key":'
post /v3/kv/range '[]'
post /v3/kv/range '"x"'
post /v3/kv/range '{"key":5}'
post /v3/kv/range '{"key":"!!"}'
post /v3/kv/range '{"key":"Zm9v","limit":"x"}'
post /v3/kv/range '{"key":"Zm9v","limit":1.5}'
post /v3/kv/range '{"key":"Zm9v","limit":99999999999999999999}'
post /v3/kv/range '{"key":"Zm9v","serializable":"true"}'
post /v3/kv/range '{"key":"Zm9v","sort_order":"DOWN"}'
post /v3/kv/txn '{"success":{}}'
post /v3/kv/txn '{"success":["x"]}'
post /v3/kv/range '{"key":"Zm9v"}' --header 'Grpc-Timeout: soon'
post /v3/kv/range '{"key":"Zm9v"}' --header 'Grpc-Metadata-hasleader: true'
post /v3/kv/range '' --request GET
post /v3/kv/range '{}' --request PUT
post /v3/kv/range '' --request OPTIONS
post /v3/kv/nothing '{}'
post /v3/kv/range/ '{}'
post /v3/kv/range:x '{}'
