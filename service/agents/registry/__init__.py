"""The registry of trained models: which model and version a request means, and moving their aliases."""
