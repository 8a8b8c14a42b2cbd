"""Property tests of the unit ring have no deadline for an example: how fast they run depends on what else the machine does."""

from hypothesis import settings

settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
