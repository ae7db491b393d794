"""Synthetic user tables from noisy marginals, with Private-PGM (the library `mbi`)."""
