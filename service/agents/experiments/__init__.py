"""How an experiment is planned: what a request says, power and size, assignment, looks, and the report."""
