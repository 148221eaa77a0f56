"""Deterministic simulation: the engine's own code on simulated stores. A seed decides who goes next, and what fails.

    scheduler   greenlets, virtual time, whose turn it is
    stores      a key-value store that gives up the turn at every call, and fails as a seed says
    past        trees as dicts, a hundred times cheaper than files of Parquet; and the real ones
    plans       what clients do: a plan is data, drawn from a seed, and can be cut down
    verbs       how a plan's operations are carried out: all that this package knows of the engine's signatures
    watch       at every swap of a branch record: is this a step that the protocol allows?
    linear      afterwards: is there an order of the operations, key by key, that explains every answer?
    judge       afterwards: commits, pages, histories, and whether every client got an answer
    merging     afterwards: is each merge what a fresh one comes to?
    run         one schedule from plan to verdict
    shrink      the smallest plan that still fails
    mutants     weaknesses to plant: the measure of all this is that each of them is caught

`python -m esker.testing.simulation --help`.
"""
