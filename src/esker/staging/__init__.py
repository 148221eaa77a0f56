"""The recent: layers of staged changes, not yet part of any tree."""
