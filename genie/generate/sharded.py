"""Sharded parameters in one rank's program: gathers before use, and scatters of gradients (ZeRO-3, FSDP2)."""

from __future__ import annotations

from genie.generate.degrees import Domain
from genie.generate.parameters import Part
from genie.generate.program import Program, Stream
from genie.generate.training import BF16_BYTES, Training
from genie.workload.graph import Op


class ShardedParameters:
    """The units of a rank: each layer, and the embedding with the head. Without sharding nothing is added."""

    def __init__(self, training: Training, program: Program) -> None:
        self.training, self.program = training, program

    @property
    def keeps_rest(self) -> bool:
        """Whether embedding and head stay gathered until their backward pass, as in FSDP2's root."""
        return self.training.sharding == "fsdp"

    def gather(self, part: Part, what: str) -> list[int | None]:
        """Gather the parameters of a unit, beside the compute that follows. Return the nodes to wait for."""
        if not self.training.shards_parameters:
            return []
        after = [self.program.last_compute]
        return [
            self.program.collective(
                f"gather {name}parameters of {what}", Op.ALL_GATHER, domain,
                BF16_BYTES * self._share(part, domain, count), Stream.PARAMETERS, "2 P / d", after,
            )
            for name, domain, count in _kinds(part)
        ]  # fmt: skip

    def scatter(self, part: Part, what: str) -> list[int | None]:
        """Reduce the gradients of a unit, each rank its shard. Return the nodes to wait for."""
        if not self.training.shards_parameters:
            return []
        gradient_bytes, nodes = self.training.gradient_bytes, []
        for name, domain, count in _kinds(part):
            members = self._members(domain)
            own_bytes = gradient_bytes * self._share(part, domain, count)
            title = f"scatter {name}gradients of {what}"
            formula = f"{gradient_bytes} P"
            node = self.program.collective(
                title, Op.REDUCE_SCATTER, domain, members * own_bytes, Stream.GRADIENTS, formula
            )
            if domain is Domain.SHARD:
                title = f"add gradients of {what}"
                formula = f"{gradient_bytes} P / d"
                copies = self.program.collective(
                    title, Op.ALL_REDUCE, Domain.REPLICA, own_bytes, Stream.GRADIENTS, formula
                )
                node = node if copies is None else copies
            nodes.append(node)
        return nodes

    def _share(self, part: Part, domain: Domain, count: int) -> int:
        """Return the parameters of a rank's shard. FSDP2 shards the rows of each parameter, ZeRO-3 all as one."""
        members = self._members(domain)
        by_rows = self.training.sharding == "fsdp" and domain is Domain.SHARD
        return part.share_by_rows(members) if by_rows else a_share(count, members)

    def _members(self, domain: Domain) -> int:
        return self.training.degrees.members(domain)


def _kinds(part: Part) -> tuple[tuple[str, Domain, int], ...]:
    return ("", Domain.SHARD, part.own), ("expert ", Domain.EXPERT_DATA, part.experts)


def a_share(count: int, members: int) -> int:
    """Return the parameters of one of so many ranks that share them, padding counted."""
    return -(-count // members)
