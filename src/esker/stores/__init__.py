"""Ports to what keeps bytes: `kv` (small, mutable, compare-and-swap) and `blob` (large, mostly immutable)."""
