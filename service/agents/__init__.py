"""The built-in reference agents: a separate ASGI app that does real work on a small, documented sample data set."""
