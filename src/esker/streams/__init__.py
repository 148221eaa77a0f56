"""Sorted batches: entries as Arrow tables, and the algorithms over them. No I/O, no files, no trees."""
