"""What a model relies on: importance, overlap, leakage, selection, and the report."""
