"""Metrics of the platform: read from Prometheus or a metrics page, and summed up."""
