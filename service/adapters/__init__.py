"""The world behind the ports: LM, agents over HTTP, SQL store, MLflow registry."""
