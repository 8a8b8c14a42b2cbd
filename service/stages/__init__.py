"""The stages of a turn, one callable each. Up to the gate they decide and touch no store and no agent; dispatch and commit act."""
