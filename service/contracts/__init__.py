"""Boundary types: frozen pydantic models, one module a contract. They know no framework, no store and no LM."""
