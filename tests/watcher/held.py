"""Which numbered cases have held, where, and over what.

Owns the list of the cases: the numbers of which nothing is seen here have their reason here.
"""

import json
import re

CASES = range(1, 57)
# What cannot happen in this store, and why.
NOT_APPLICABLE = {
    44: "rights: there is no authorisation to stand on",
    45: "rights: there is no authorisation to stand on",
    46: "rights: there is no authorisation to stand on",
    47: "ERROR as a state: what cannot be decoded stops the node before anybody could ask for it",
}
# What only some transports have.
NOT_OVER = {
    (54, "gRPC"): "it is about the form of JSON",
    (55, "gRPC"): "it is about the statuses of HTTP",
    (56, "lines"): "it is about the bytes of messages",
    (56, "events"): "it is about the bytes of messages",
}


class Failed(Exception):
    """Something is not as it should be."""


class Held:
    """Notes what has held over one transport at one place."""

    def __init__(self, file, via, at):
        self.file = file
        self.via = via
        self.at = at
        self.numbers = set()

    @staticmethod
    def insist(condition, what):
        """For what is looked at so often that nobody wants to read it."""
        if not condition:
            raise Failed(what)

    def check(self, condition, what):
        """`what` begins with the cases that it is about, if it is about any."""
        self.insist(condition, what)
        print(f"    {what if len(what) < 200 else what[:200] + ' …'}")
        names = re.match(r"(W\d+(, )?)*", what).group()
        self.numbers.update(int(name) for name in re.findall(r"\d+", names))

    def note(self):
        with open(self.file, "a", encoding="utf-8") as file:
            for number in sorted(self.numbers):
                file.write(json.dumps([number, self.via, self.at]) + "\n")


def tally(path, transports, places):
    """Prints every case by its number; complains of those that were not seen to hold. At each place the same must have held."""
    with open(path, encoding="utf-8") as file:
        held = {tuple(json.loads(line)) for line in file}
    missing = []
    for number in CASES:
        if reason := NOT_APPLICABLE.get(number):
            if any(case == number for case, _, _ in held):
                raise Failed(f"W{number} is said to be not applicable, and was seen")
            print(f"    W{number:<3} not applicable: {reason}")
            continue
        over = []
        for via in transports:
            if (number, via) in NOT_OVER:
                continue
            at = [place for case, other, place in sorted(held) if (case, other) == (number, via)]
            over.append(f"{via} ({', '.join(at)})")
            # Some need a fault, and are seen once; what is seen at one place is seen at all of them.
            somewhere = [place for place in at if place in places]
            if not at or (somewhere and set(somewhere) != set(places)):
                missing.append(f"W{number} over {via}, seen at {at}")
        print(f"    W{number:<3} holds over {', '.join(over)}")
    if missing:
        raise Failed("not seen: " + "; ".join(missing))
