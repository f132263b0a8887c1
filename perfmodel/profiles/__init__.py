"""Readers of profiles: one file per format, all of them return a `perfmodel.analysis.profile.Profile`."""

from perfmodel.profiles.detect import read_profile, read_profiles

__all__ = ["read_profile", "read_profiles"]
