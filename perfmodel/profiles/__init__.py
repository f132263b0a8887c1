"""Readers of profiles: one file per format, all of them return a `perfmodel.analysis.profile.Profile`."""

from perfmodel.profiles.table import read_profile

__all__ = ["read_profile"]
