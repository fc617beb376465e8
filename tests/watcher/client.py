"""A client of google.watcher.v1, made from the proto by another implementation of gRPC: scripts/test-watcher runs it.

    client.py cases NOTES ENDPOINT OTHER PLACE      the cases that need nothing but a cluster that is well
    client.py faults NOTES SCRIPT ENDPOINT …        those in which nodes die, stand still, or are alone; SCRIPT drives the cluster
    client.py mark STATE ENDPOINT                   leaves markers in STATE
    client.py refused NOTES STATE ENDPOINT CASE     those markers are refused: CASE is W16 or W18
    client.py tally NOTES PLACE …                   prints what has held; fails if a case is missing, or was not seen at each PLACE

Ends with an error at the first thing that is not as it should be. NOTES is a file to which is added what has held.
"""

import sys
import time

import cases
import faults
import held
from streams import TRANSPORTS, Ended, Grpc


def run_cases(notes, endpoint, other, place):
    begin = time.monotonic()
    # At the other node, because streams are counted at this one.
    over_http = [transport for transport in TRANSPORTS.values() if transport is not Grpc]
    unnumbered = held.Held(notes, "", place)
    idle = [cases.Idle(unnumbered, transport, other, f"{place}-{transport.name}") for transport in over_http]
    for name, transport in TRANSPORTS.items():
        print(f"over {name}")
        here = held.Held(notes, name, place)
        cases.run_all(here, transport, endpoint, other, f"{place}-{name}")
        here.note()
    for stream in idle:
        stream.says_that_it_is_there()
    print(f"everything holds at this node, {time.monotonic() - begin:.1f} s")


def run_faults(notes, script, *endpoints):
    cluster = faults.Cluster(script, endpoints)
    faults.w17_a_node_that_lags(notes, cluster)
    faults.w50_the_leader_dies(notes, cluster)
    leader = cluster.leader()
    faults.w51_a_node_alone(notes, cluster, cluster.others(leader)[0], "a follower alone")
    faults.w51_a_node_alone(notes, cluster, cluster.leader(), "a leader alone")


def main(command, *arguments):
    match command:
        case "cases":
            run_cases(*arguments)
        case "faults":
            run_faults(*arguments)
        case "mark":
            state, endpoint = arguments
            faults.mark(endpoint, state)
        case "refused":
            notes, state, endpoint, case = arguments
            faults.refused(notes, endpoint, state, case)
        case "tally":
            notes, *places = arguments
            held.tally(notes, TRANSPORTS, places)
        case _:
            sys.exit(__doc__)


if __name__ == "__main__":
    try:
        main(*sys.argv[1:])
    except (held.Failed, Ended) as failed:
        sys.exit(f"FAILED: {failed}")
