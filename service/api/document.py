"""The OpenAPI document, where FastAPI falls short: no 422 that never happens, problems, nulls in examples, keys that are not needed."""

from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute

from service.contracts.problem import Problem

Document = dict[str, Any]


def install(app: FastAPI, router: APIRouter) -> None:
    """Let the app's document be corrected, once, when it is first asked for."""
    original = app.openapi

    def openapi() -> Document:
        if app.openapi_schema is None:
            document = original()
            _describe_problems(document)
            for route in router.routes:
                if isinstance(route, APIRoute):
                    _correct(document, route)
        return app.openapi_schema or original()

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to change the document


def _describe_problems(document: Document) -> None:
    schemas = document["components"]["schemas"]
    for unused in ("HTTPValidationError", "ValidationError"):
        schemas.pop(unused, None)
    problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}", mode="serialization")
    schemas |= problem.pop("$defs") | {"Problem": problem}


def _correct(document: Document, route: APIRoute) -> None:
    for method in route.methods or ():
        operation = document["paths"][route.path_format][method.lower()]
        if "security" in operation:
            operation["security"].append({})  # without keys the service answers on loopback
        responses = operation["responses"]
        responses.pop("422", None)
        for status, response in route.responses.items():
            for media_type, content in response["content"].items():
                if "example" in content:  # FastAPI drops what is null, and with it fields that are required
                    responses[str(status)]["content"][media_type]["example"] = content["example"]
