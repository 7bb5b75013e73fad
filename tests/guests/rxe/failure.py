"""Errors that end the rig, in one line each."""

from __future__ import annotations


class RigError(Exception):
    """The machine lacks something, or a guest did not do what it must; the message says which and what to do."""


class TimeLimitError(RigError):
    """A command in a guest takes longer than it may."""


class GivenError(RigError):
    """An argument of the caller is invalid; the message says what is valid."""
