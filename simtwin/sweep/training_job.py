"""A training job as the workload of a sweep."""

from __future__ import annotations

from functools import lru_cache

from genie.errors import UsageError
from genie.generate.pipeline import as_csv
from genie.generate.step import Step
from genie.generate.training_job import TrainingJob
from genie.workload.graph import Workload, WorkloadError


def step_of_job(job: TrainingJob) -> Step:
    """Return the training step. Raises WorkloadError for a job that cannot be."""
    try:
        return Step(job.training(), job.roofline().timed)
    except UsageError as error:
        raise WorkloadError(f"job: {error}") from error


def facts_of_job(job: TrainingJob) -> list[str]:
    """Return all that decides the workload, the contents of files included. Raises WorkloadError."""
    step = step_of_job(job)
    return [repr(step.training), as_csv(step.schedule), job.gpu, repr(job.compute_scale)]


@lru_cache(maxsize=1)
def workload_of_job(job: TrainingJob) -> Workload:
    """Return the workload, whose ranks share the graphs of their classes. Raises WorkloadError."""
    try:
        return step_of_job(job).workload(job.model)
    except UsageError as error:
        raise WorkloadError(f"job: {error}") from error
