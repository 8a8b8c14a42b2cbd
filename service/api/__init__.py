"""The HTTP surface: routes, dependencies, problem details, middleware."""
