"""Recordings that MindSpore itself makes of compiled graphs."""
