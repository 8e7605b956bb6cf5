"""The contract that a queue driver fills in: records, states and one small Protocol a store."""
