"""topoadvisor: see the wires, choose the settings, prove it."""

__version__ = "0.1.0"
