"""Bytes on disk and values in memory, each way. `docs/spec/` is the normative text; golden files hold it in place."""
