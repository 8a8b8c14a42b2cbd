"""The fault agent: a server in front of the agents that misbehaves as a plan says, for tests and for operators' drills."""
