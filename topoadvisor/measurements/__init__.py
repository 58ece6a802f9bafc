"""Measurements of the machine of a snapshot and trials of settings: which of them count, and what they say."""
