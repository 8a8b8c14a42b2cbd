"""The catalogue: intents, agents and the gazetteer as data, cross-checked when it is loaded."""
