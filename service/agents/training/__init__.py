"""From a wish for a model to a fitted one: scope, table, checks, families, search, fit and metrics."""
