"""The past: immutable trees of entries, addressed by their content."""
