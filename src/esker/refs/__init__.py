"""Names: the mutable records, changed by compare-and-swap alone, and the history that they point into."""
