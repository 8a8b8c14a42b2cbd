"""How an effect differs: the groups, the estimates, their tests and their ranking."""
