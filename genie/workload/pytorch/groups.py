"""Members of the process groups, from each rank's traces."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from genie.workload.files import RANK_MAX
from genie.workload.graph import WorkloadError
from genie.workload.pytorch.communications import Communication, Role, process_groups
from genie.workload.pytorch.kineto import DeviceTrace
from genie.workload.pytorch.trace import WRONG_CONTENT, HostTrace

Members = tuple[int, ...]


@dataclass
class RankView:
    """Facts about groups in one rank's traces."""

    rank: int
    host: HostTrace | None
    device: DeviceTrace | None
    communications: list[Communication]
    listed: list[dict[str, Any]] = field(default_factory=list)  # groups found in a profile without a host trace

    def entries(self) -> list[dict[str, Any]]:
        """Entries with pg_name and ranks (empty: all) of each group that the traces list."""
        listed = process_groups(self.host) if self.host else []
        if self.device:
            listed = listed + _listed(self.device) + self.listed
        found = [entry for entry in listed if isinstance(entry, dict) and "pg_name" in entry]
        return [self._checked(entry) for entry in found]

    def _checked(self, entry: dict[str, Any]) -> dict[str, Any]:
        """An entry with checked numbers of ranks and sizes. Raises WorkloadError."""
        name = str(entry["pg_name"])
        try:
            ranks = [int(rank) for rank in entry.get("ranks") or []]
            size = int(entry.get("group_size") or entry.get("pg_size") or 0)
        except WRONG_CONTENT as error:
            raise WorkloadError(
                f"{_source(self)}: group {name!r}: its ranks or size are not numbers: {error}"
            ) from error
        if not all(0 <= rank <= RANK_MAX for rank in [*ranks, size]):
            raise WorkloadError(f"{_source(self)}: group {name!r}: ranks and sizes are from 0 to {RANK_MAX}")
        return {"pg_name": name, "ranks": ranks, "group_size": size}


def _listed(device: DeviceTrace) -> list[Any]:
    groups = device.distributed.get("pg_config") or []
    if not isinstance(groups, list):
        raise WorkloadError(f"{device.path}: pg_config is not a list of groups; is the file damaged?")
    return groups


def world_size(views: list[RankView]) -> int:
    """Number of ranks of the job: the largest number that any trace implies."""
    sizes = [1 + max(view.rank for view in views)]
    for view in views:
        if view.device:
            sizes.append(int(view.device.distributed.get("world_size") or 0))
        for entry in view.entries():
            ranks = entry.get("ranks") or []
            sizes.append(
                1 + max(map(int, ranks)) if ranks else int(entry.get("group_size") or entry.get("pg_size") or 0)
            )
        for communication in view.communications:
            if communication.group_range:
                start, stride = communication.group_range
                sizes.append(start + stride * (communication.group_size - 1) + 1)
            sizes.append(max(communication.group_size, len(communication.to_each)))
    if max(sizes) > RANK_MAX + 1:
        raise WorkloadError(f"{_source(views[0])}: a job of {max(sizes)} ranks; at most {RANK_MAX + 1} are read")
    return max(sizes)


def members_by_name(view: RankView, world: int) -> dict[str, Members]:
    """Members of each group that a rank uses or lists. Groups known by an address only become "0", "1", ...

    A group's list of ranks, which the profiler cuts when it is long, is not needed. The list of groups, or the first
    rank, stride and size in each record, give the same. Raises WorkloadError for a group without a definition.
    """
    everyone = tuple(range(world))
    members: dict[str, Members] = {}
    for entry in view.entries():
        ranks = entry.get("ranks") or []
        size = int(entry.get("group_size") or entry.get("pg_size") or 0)
        if ranks or size in (0, world):
            members[str(entry["pg_name"])] = tuple(sorted(map(int, ranks))) or everyone
    used = [communication for communication in view.communications if communication.moves_data]
    for communication in used:
        if communication.group not in members and communication.group_range:
            start, stride = communication.group_range
            members[communication.group] = tuple(
                range(start, start + max(stride, 1) * communication.group_size, max(stride, 1))
            )
    _name_unknown_groups(view, used, members, everyone)
    for communication in used:
        if view.rank not in members[communication.group]:
            raise WorkloadError(
                f"{_source(view)}: rank {view.rank} takes part in group {communication.group!r}, whose ranks are "
                f"{list(members[communication.group])}; is this file of another rank?"
            )
        position = communication.root if communication.role is Role.COLLECTIVE else communication.peer
        size = len(members[communication.group])
        if not 0 <= position < size:
            raise WorkloadError(
                f"{_source(view)}: call {communication.node.id} ({communication.recorded_name}): its other end is "
                f"member {position} of {size}; a receive from any source cannot be converted"
            )
    return members


def _name_unknown_groups(
    view: RankView, used: list[Communication], members: dict[str, Members], everyone: Members
) -> None:
    """Name groups that old schemas identify by an address.

    Such a group has all ranks if it is the only one or as large as the job.
    """
    unknown = list(dict.fromkeys(communication.group for communication in used if communication.group not in members))
    free = (str(number) for number in range(len(members) + len(unknown)) if str(number) not in members)
    names = dict(zip(unknown, list(free), strict=False))
    for communication in used:
        if communication.group not in names:
            continue
        size = communication.group_size or len(communication.to_each)
        if size not in (0, len(everyone)) or (size == 0 and len(unknown) > 1):
            raise WorkloadError(
                f"{_source(view)}: call {communication.node.id} ({communication.recorded_name}) is in "
                f"{communication.group}, and no trace says which ranks that is; capture with a PyTorch of 2.3 or later"
            )
        communication.group = names[communication.group]
        members[communication.group] = everyone


def agree(by_rank: Mapping[int, dict[str, Members]]) -> tuple[dict[str, Members], dict[int, dict[str, str]]]:
    """(members by name, rank -> old name -> new name): one name per group for the whole job.

    Frameworks may use one name for groups of different members on different ranks, because each rank sees only its own.
    Such a name gets the group's number among the groups of that name.
    """
    variants: dict[str, set[Members]] = {}
    for members in by_rank.values():
        for name, ranks in members.items():
            variants.setdefault(name, set()).add(ranks)
    numbers = {name: {ranks: at for at, ranks in enumerate(sorted(found))} for name, found in variants.items()}
    groups: dict[str, Members] = {}
    replacements: dict[int, dict[str, str]] = {}
    for rank, members in by_rank.items():
        replacements[rank] = {}
        for name, ranks in members.items():
            agreed = name if len(numbers[name]) == 1 else f"{name}.{numbers[name][ranks]}"
            groups[agreed] = ranks
            replacements[rank][name] = agreed
    return dict(sorted(groups.items())), replacements


def _source(view: RankView) -> str:
    return str(view.host.path if view.host else view.device.path if view.device else f"rank {view.rank}")
