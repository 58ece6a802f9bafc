"""Lines that set variables, in files of many kinds: what is wrong with them, and what of that is safe to repair."""
