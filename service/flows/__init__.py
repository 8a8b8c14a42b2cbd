"""The ways to carry a decision out: plug-ins behind one interface."""
