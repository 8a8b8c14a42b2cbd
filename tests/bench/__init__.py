"""Benchmarks and experiments that are run by hand."""
