"""Advice → configuration files."""
