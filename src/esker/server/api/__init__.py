"""Handlers, a module for each group of the API. Each exports its `OPERATIONS`."""
