"""Snapshot → graph."""
