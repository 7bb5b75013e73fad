"""Pipelines of torch.distributed.pipelining: stages vote on static shapes before their first step, here alone."""

from __future__ import annotations

from typing import Any

from .graph import Refused
from .script import line_of_script


def pretend() -> None:
    """Let each stage decide for itself; a stage without static shapes is refused."""
    try:
        from torch.distributed.pipelining import schedules
        from torch.distributed.pipelining import stage as stages
    except ImportError:
        return
    mode = getattr(stages, "InferenceMode", None)
    if mode is None:  # versions before the vote exchange shapes as objects, which is refused there
        return

    def warm_up(_: Any, own: list[Any], has_backward: bool, *__: Any, **___: Any) -> None:
        for stage in own:
            if mode.needs_dynamic(stage._user_meta, has_backward):
                raise Refused(
                    f"{line_of_script()}: stage {stage.stage_index} asks its neighbours for shapes, which a capture of "
                    "one rank has not: give PipelineStage input_args and output_args with requires_grad"
                )
            stage._inference_mode = mode.STATIC

    schedules._PipelineSchedule._warmup_p2p = warm_up
