"""Pointsman, the offline side: from seed sets and signals to router versions."""
