"""The OpenAPI document and the routes say the same."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
from starlette.routing import Route

from headgate.service.app import Service
from headgate.service.bodies import BACKUP_FIELDS, CHANGE_FIELDS, LOAD_FIELDS, QUEUE_FIELDS, QueryBody
from headgate.service.limits import ServiceLimits
from headgate.service.openapi import document
from headgate.service.restarts import Restarts

LIMITS = ServiceLimits(rows=1234)


def test_every_route_is_documented_and_every_documented_one_exists() -> None:
    routes = {
        (route.path, method.lower())
        for route in Service(None, LIMITS, Restarts()).routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }
    documented = {(path, method) for path, methods in document(LIMITS)["paths"].items() for method in methods}
    assert documented == routes


def test_a_query_has_the_documented_fields() -> None:
    schema = document(LIMITS)["components"]["schemas"]["Query"]
    assert set(schema["properties"]) == set(QueryBody.__dataclass_fields__)
    assert schema["required"] == ["sql"] and "1,234" in schema["properties"]["limit"]["description"]


@pytest.mark.parametrize(
    ("path", "method", "fields"),
    [
        ("/v1/settings", "patch", CHANGE_FIELDS),
        ("/v1/backup", "post", BACKUP_FIELDS),
        ("/v1/queue", "post", QUEUE_FIELDS),
        ("/v1/load", "post", LOAD_FIELDS),
    ],
)
def test_changes_have_the_documented_fields(path: str, method: str, fields: Mapping[str, object]) -> None:
    body = document(LIMITS)["paths"][path][method]["requestBody"]
    schema = body["content"]["application/json"]["schema"]
    assert body["required"] and set(schema["properties"]) == set(fields) >= set(schema["required"])


def test_every_reference_leads_somewhere_and_every_response_says_what_it_is() -> None:
    whole = document(LIMITS)
    names = re.findall(r"'#/components/schemas/(\w+)'", str(whole))
    assert names and set(names) <= set(whole["components"]["schemas"])
    for methods in whole["paths"].values():
        for operation in methods.values():
            assert operation["summary"] and all(found["description"] for found in operation["responses"].values())


def test_path_parameters_are_declared() -> None:
    for path, methods in document(LIMITS)["paths"].items():
        for operation in methods.values():
            declared = {found["name"] for found in operation.get("parameters", ()) if found["in"] == "path"}
            assert declared == set(re.findall(r"{(\w+)}", path))
