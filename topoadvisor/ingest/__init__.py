"""Foreign files and pasted texts → Snapshot."""
