"""What a client knows that keeps to the strictest reading of the protocol.

It applies whole groups, keeps a marker only when a group is closed, and insists on what the protocol promises: the entity itself in
the first group, ancestors before descendants, nothing about what went with its ancestor.
"""

from held import Failed


def parent(element):
    """None for the entity itself."""
    if not element:
        return None
    return element.rpartition("/")[0]


class View:
    def __init__(self):
        # What each element carries.
        self.elements = {}
        self.marker = b""
        self.pending = []
        self.begins = "state"
        # Whether everything that is there is known.
        self.is_whole = False

    def begin(self, how):
        """A stream begins: with the state, with "now", or after the marker."""
        self.begins = how
        # A group that was cut off comes again whole.
        self.pending = []
        if how == "state":
            self.elements = {}

    def take(self, change):
        """Takes a change; whether it was the last one of its group."""
        # W19: forbidden to the server; a client that saw it would have to ignore it.
        if change.continued == bool(change.marker):
            raise Failed(f"a marker stands at the end of a group and nowhere else: {change}")
        self.pending.append(change)
        if change.continued:
            return False
        group, self.pending = self.pending, []
        if self.begins is not None:
            self._first(group)
        for change in group:
            self._apply(change)
        self.begins = None
        self.marker = group[-1].marker
        return True

    def _first(self, group):
        if self.begins == "now":
            if [change.show() for change in group] != ["C(,S,m)"]:
                raise Failed(f"a stream from now on began with {group}")
        elif self.begins == "state":
            if not any(change.element == "" for change in group):
                raise Failed(f"the first group does not tell of the entity itself: {group}")
            elements = [change.element for change in group]
            if elements != sorted(set(elements), key=str.encode):
                raise Failed(f"the state is not in the order of names: {elements}")
            self.is_whole = True

    def _apply(self, change):
        element = change.element
        if change.state == "S":
            if self.begins != "now" or element:
                raise Failed(f"in the midst of a stream: {change}")
            return
        if (change.data is not None) != (change.state == "E"):
            raise Failed(f"only what exists has data: {change}")
        above = parent(element)
        if self.is_whole and above is not None and above not in self.elements:
            raise Failed(f"{element} is told of, and {above or 'the entity'}, above it, is not there")
        if change.state == "E":
            self.elements[element] = change.data
        else:
            for name in list(self.elements):
                if not element or name == element or name.startswith(element + "/"):
                    del self.elements[name]
