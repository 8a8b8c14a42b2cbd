"""Pointsman, the online side: understand, decide, gate, carry out, merge, commit."""
