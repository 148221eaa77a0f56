"""esker: git for a data lake."""
