"""Readers of profiles: one file per format, all of them return a `perfmodel.profile.profile.Profile`."""

from perfmodel.formats.detect import read_profile, read_profiles

__all__ = ["read_profile", "read_profiles"]
