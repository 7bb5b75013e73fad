"""Names of hosts, links and paths in findings."""

from __future__ import annotations

from collections.abc import Iterable

from genie.check.blame import Blame
from genie.check.settings import CheckSettings


class Names:
    """The names of one check."""

    def __init__(self, settings: CheckSettings) -> None:
        self._settings = settings

    def rank(self, rank: int) -> str:
        """Return a name such as `rank 3 (host3, 10.0.3.1)`."""
        settings = self._settings
        host = settings.ports[rank] or settings.host_names[rank]
        return f"rank {rank} ({host}, {settings.addresses[rank]})"

    def ranks(self, ranks: Iterable[int]) -> str:
        """Return a list such as `ranks 1, 3 and 5`."""
        texts = [str(rank) for rank in sorted(ranks)]
        if len(texts) == 1:
            return self.rank(int(texts[0]))
        return f"ranks {', '.join(texts[:-1])} and {texts[-1]}"

    def link(self, address: str) -> str:
        """Return the name of the link that ends at an address; without a fabric file the address itself is named."""
        return self._settings.link_names.get(address, f"the link into {address}")

    def links(self, addresses: Iterable[str]) -> str:
        """Return the names of links that no path distinguishes."""
        return " or ".join(self.link(address) for address in addresses)

    def port(self, path: int) -> int:
        """Return a path's UDP source port."""
        return self._settings.probe_ports[path]

    def where(self, blame: Blame) -> str:
        """Return the place of a cause, such as `from rank 3 (...) to all others`."""
        if blame.kind == "all":
            return "between all hosts"
        if blame.kind == "from":
            return f"from {self.rank(blame.ranks[0])} to all others"
        if blame.kind == "to":
            return f"from all others to {self.rank(blame.ranks[0])}"
        if blame.kind == "link":
            source, target, path = blame.paths[0]
            example = f"for example from rank {source} to rank {target} by UDP source port {self.port(path)}"
            return f"over {self.links(blame.links)}, {example}"
        source, target = blame.ranks
        text = f"from {self.rank(source)} to {self.rank(target)}"
        if blame.kind == "pair":
            return text
        ports = f"UDP source port {self.port(blame.paths[0][2])}"
        return f"{text} on {len(blame.paths)} of {self._settings.paths} paths, for example by {ports}"
