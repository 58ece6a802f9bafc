"""Measuring the live machine: peer copies in child processes, and what their numbers mean."""
