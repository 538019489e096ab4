"""The OpenAPI document: what can be asked of the service, in what form, and what comes back."""

from __future__ import annotations

from typing import Any

from headgate.scaling.scaler import SIZED
from headgate.service.bodies import LONGEST_NAME
from headgate.service.formats import CONTENT_TYPES
from headgate.service.limits import ServiceLimits
from headgate.service.permissions import BACKUP, PERMISSIONS
from headgate.service.subscriptions import EVENT_STREAM, FORMATS

Schema = dict[str, Any]

_ERRORS = {
    "400": "The request or the query is wrong.",
    "401": "The token is missing or wrong.",
    "403": "The role may not do this, or the request came by a foreign name or from a foreign page.",
    "404": "There is no such flow or job.",
    "408": "The request did not arrive in time.",
    "409": "A flow that the answer needs has failed on its data.",
    "413": "The request is too large.",
    "429": "Too many queries are running; come again after Retry-After.",
    "500": "The service or the warehouse is broken.",
    "503": "Not now: the warehouse is being opened or closed, or something passing went wrong; come again after Retry-After.",
    "504": "No answer that is fresh enough could be made within the deadline, or within the time that the service allows.",
}

_TOKENS = (
    "The service's own token, or that of a named role. An operation lists what its role has to be able to do: read, produce (and "
    "read) or administer (and everything else). A service without a token of its own, and without roles, asks for none."
)

_AS_OF = "A job whose rows the client has, or the id of the last event that it got: only later changes are sent."

_BODY = (400, 408, 413)
"""What may be wrong with the body of a request."""


def document(limits: ServiceLimits) -> Schema:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "headgate",
            "version": "1",
            "description": "A warehouse over HTTP: a query says how fresh its answer must be.",
            "license": {"name": "Apache 2.0", "identifier": "Apache-2.0"},
        },
        "paths": _secured(_paths()),
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer", "description": _TOKENS}},
            "schemas": {"Error": _error(), "Query": _query(limits), "Rows": _rows(), "Receipt": _receipt()},
        },
    }


def _secured(paths: Schema) -> Schema:
    """The paths, each operation with what it needs."""
    for path, operations in paths.items():
        for method, operation in operations.items():
            needed = PERMISSIONS[method.upper(), path]
            operation["security"] = [] if needed is None else [{}, {"token": [needed]}]
    return paths


def _paths() -> Schema:
    binary = {"schema": {"type": "string", "format": "binary"}}
    json = {"schema": {"$ref": "#/components/schemas/Rows"}}
    receipt = {"description": "The receipt as compact JSON.", "schema": {"type": "string"}}
    query = _operation("Answer one SELECT.", 400, 404, 408, 409, 413, 429, 500, 503, 504)
    query["requestBody"] = _body({"$ref": "#/components/schemas/Query"}, required=True)
    query["responses"]["200"] = {
        "description": "The rows: as JSON, an Arrow IPC stream, CSV or a Parquet file.",
        "headers": {"Headgate-Receipt": receipt},
        "content": {kind: json if form == "json" else binary for form, kind in CONTENT_TYPES.items()},
    }
    subscribe = _operation("Follow a table: its changes, job by job, as server-sent events.", 400, 404, 429, 503)
    subscribe["parameters"] = [
        {"name": "table", "in": "path", "required": True, "schema": {"type": "string"}},
        {"name": "as_of", "in": "query", "schema": {"type": "string"}, "description": _AS_OF},
        {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}, "description": _AS_OF},
        {"name": "format", "in": "query", "schema": {"enum": list(FORMATS), "default": "json"}},
        {
            "name": "max_staleness",
            "in": "query",
            "schema": {"type": "string"},
            "description": "How fresh the table is kept meanwhile: 10s, any. By default as the project says.",
        },
    ]
    subscribe["responses"]["200"] = {
        "description": "Events of the kinds table, changes and problem; the last one of a job has its position as id.",
        "content": {EVENT_STREAM: {"schema": {"type": "string"}}},
    }
    lineage = _operation("Which columns of which tables each column of a table is made of.", 404, 503)
    lineage["parameters"] = [{"name": "table", "in": "path", "required": True, "schema": {"type": "string"}}]
    explain = _operation("The graph of a flow and what of it is incremental.", 404, 503)
    explain["parameters"] = [{"name": "flow", "in": "path", "required": True, "schema": {"type": "string"}}]
    history = _operation("The latest jobs and the receipts of the latest queries, the newest last.", 400, 503)
    limit = {"type": "integer", "minimum": 1, "maximum": 1000, "default": 100}
    history["parameters"] = [{"name": "limit", "in": "query", "schema": limit}]
    refresh = _operation("Bring every table up to date.", *_BODY, 409, 503)
    whole = "Read all tables of all sources whole again first."
    one = "Read this source table whole again first, or build this flow again from its inputs."
    refresh["requestBody"] = _body(
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "full": {"type": ["boolean", "null"], "default": False, "description": whole},
                "table": {"type": ["string", "null"], "default": None, "description": one},
            },
        }
    )
    apply = _operation(
        "Take the project's files as they are now; gives what changed, or would change.", *_BODY, 409, 503
    )
    apply["requestBody"] = _body(
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "dry_run": {"type": ["boolean", "null"], "default": False, "description": "Change nothing."},
                "diff": {"type": ["boolean", "null"], "default": False, "description": "Count the rows that change."},
                "expected": {
                    "type": ["string", "null"],
                    "description": "The identity of a preview: anything else is refused.",
                },
            },
        }
    )
    advise = _operation("What storing other results of flows would gain; nothing is moved.", 400, 503)
    advise["parameters"] = [{"name": "flow", "in": "query", "schema": {"type": "string"}}]
    follow = _operation("Store those results of a flow, or of all, that take least time.", *_BODY, 503)
    follow["requestBody"] = _body(
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                "flow": {"type": ["string", "null"], "description": "By default all that may be moved."},
                "space": {
                    "type": ["number", "null"],
                    "minimum": 0,
                    "description": "What building and space count beside latency.",
                },
            },
        }
    )
    repair = _operation(
        "Copy tables to their platform again: the one named, or all that others have changed.", *_BODY, 503
    )
    repair["requestBody"] = _body(
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {"table": {"type": ["string", "null"], "default": None, "description": "A placed table."}},
        }
    )
    change = _operation("Change a setting while the warehouse runs, or reset it to the project file's.", *_BODY, 503)
    change["requestBody"] = _body(
        {
            "type": "object",
            "required": ["name"],
            "additionalProperties": False,
            "oneOf": [
                {"required": ["value"], "properties": {"reset": {"enum": [False, None]}}},
                {"required": ["reset"], "properties": {"reset": {"const": True}}, "not": {"required": ["value"]}},
            ],
            "properties": {
                "name": {"type": "string", "description": "As the project file has it: freshness.max_staleness."},
                "value": {"description": "As the project file would have it."},
                "reset": {"type": ["boolean", "null"]},
                "who": {
                    **_name(),
                    "description": "Who is recorded as changing it; by default the role that asks, or the service.",
                },
            },
        },
        required=True,
    )
    scale = _operation("Set the size of a part by hand, or give it back to its policy.", *_BODY, 503)
    scale["requestBody"] = _body(
        {
            "type": "object",
            "required": ["part"],
            "additionalProperties": False,
            "properties": {
                "part": {"enum": list(SIZED)},
                "size": {"type": ["integer", "null"], "minimum": 1, "description": "null: what its policy says."},
            },
        },
        required=True,
    )
    ranges = _operation("Split, merge or set the key ranges of a table and of those aligned with it.", *_BODY, 503)
    ranges["requestBody"] = _body(
        {
            "type": "object",
            "required": ["table"],
            "additionalProperties": False,
            "oneOf": [
                {"required": ["split"]},
                {"required": ["merge"]},
                {"required": ["bounds"]},
                {"required": ["count"]},
            ],
            "properties": {
                "table": {"type": "string"},
                "split": {"type": "string", "description": "A value at which a range begins."},
                "merge": {"type": "integer", "minimum": 0, "description": "The range that takes the next one in."},
                "bounds": {"type": "array", "items": {"type": "string"}, "description": "All bounds, in order."},
                "count": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 1000,
                    "description": "Ranges of about equal size.",
                },
            },
        },
        required=True,
    )
    loads = _operation("The sources whose tables do not all have their first rows, and how far those are.", 503)
    load_first = _operation("Have a source table loaded before others; gives how far all are.", *_BODY, 503)
    load_first["requestBody"] = _body(
        {
            "type": "object",
            "required": ["first"],
            "additionalProperties": False,
            "properties": {
                "first": {
                    "type": "string",
                    "description": "A source table, such as shop.orders, or rows of it: shop.orders WHERE id < 1000.",
                }
            },
        },
        required=True,
    )
    queue = _operation(
        "Split a partition of a source's elastic queue, or merge two neighbours; gives the partitions.", *_BODY, 503
    )
    queue["requestBody"] = _body(
        {
            "type": "object",
            "required": ["source", "partition"],
            "additionalProperties": False,
            "properties": {
                "source": {"type": "string"},
                "partition": {"type": "integer", "description": "Its number."},
                "other": {"type": ["integer", "null"], "description": "The neighbour to merge it with."},
            },
        },
        required=True,
    )
    backup = _operation(
        "Copy ledger, tables and stream logs, as they are at one moment, into an empty folder of the service's machine.",
        *_BODY,
        500,
        503,
    )
    backup["requestBody"] = _body(
        {
            "type": "object",
            "required": ["folder"],
            "additionalProperties": False,
            "properties": {"folder": {"type": "string", "description": "Its absolute path."}},
        },
        required=True,
    )
    return {
        "/v1/query": {"post": query},
        "/v1/subscribe/{table}": {"get": subscribe},
        "/v1/status": {"get": _operation("The warehouse now: jobs, tables, sources, queries.", 503)},
        "/v1/tables": {"get": _operation("Every table: columns, key, what it reads, how fresh it is.", 503)},
        "/v1/history": {"get": history},
        "/v1/explain/{flow}": {"get": explain},
        "/v1/lineage/{table}": {"get": lineage},
        "/v1/refresh": {"post": refresh},
        "/v1/resume": {"post": _operation("Take the flow files as they are now and try again what failed.", 400, 503)},
        "/v1/apply": {"post": apply},
        "/v1/advise": {"get": advise, "post": follow},
        "/v1/serving": {
            "get": _operation("What the platforms beside Spark have: job, trouble, and each placed table.", 503),
            "post": repair,
        },
        "/v1/settings": {
            "get": _operation("Settings that can be changed while the warehouse runs, and who changed what.", 503),
            "patch": change,
        },
        "/v1/scale": {
            "get": _operation("The size of every part, why it has it, and what changed lately.", 400, 503),
            "post": scale,
        },
        "/v1/ranges": {
            "get": _operation("How tables are cut into key ranges, where these stand, which scans are aligned.", 503),
            "patch": ranges,
        },
        "/v1/load": {"get": loads, "post": load_first},
        "/v1/queue": {"post": queue},
        BACKUP: {"post": backup},
        "/v1/producers": {
            "get": _operation(
                "The socket of this machine at which producers connect, and the port for those on others.", 404, 503
            )
        },
        "/metrics": {
            "get": _text(
                "Metrics in Prometheus' text format 0.0.4, or OpenMetrics if the Accept header asks for it.", 503
            )
        },
        "/healthz": {"get": _text("Whether the service is alive and has its Spark.", 503, is_open=True)},
        "/readyz": {"get": _text("Whether the warehouse is open and answers.", 503)},
        "/openapi.json": {"get": _operation("This document.")},
    }


def _operation(summary: str, *statuses: int) -> Schema:
    good = {"description": "As asked.", "content": {"application/json": {"schema": {"type": "object"}}}}
    errors = {str(status): _failure(str(status)) for status in (*statuses, 401, 403)}
    return {"summary": summary, "responses": {"200": good, **errors}}


def _text(summary: str, *statuses: int, is_open: bool = False) -> Schema:
    operation = _operation(summary, *statuses)
    operation["responses"]["200"]["content"] = {"text/plain": {"schema": {"type": "string"}}}
    if is_open:
        kept = ("200", *map(str, statuses))
        operation["responses"] = {status: operation["responses"][status] for status in kept}
    return operation


def _failure(status: str) -> Schema:
    schema = {"$ref": "#/components/schemas/Error"}
    return {"description": _ERRORS[status], "content": {"application/json": {"schema": schema}}}


def _body(schema: Schema, *, required: bool = False) -> Schema:
    return {"required": required, "content": {"application/json": {"schema": schema}}}


def _error() -> Schema:
    text, maybe = {"type": "string"}, {"type": ["string", "null"]}
    problem = {
        "type": "object",
        "required": ["kind", "what", "where", "hint"],
        "properties": {"kind": text, "what": text, "where": maybe, "hint": maybe},
    }
    return {"type": "object", "required": ["error"], "properties": {"error": problem}}


def _query(limits: ServiceLimits) -> Schema:
    duration = {"type": ["string", "number", "null"], "examples": ["10m", 0.5]}
    count = {"type": ["integer", "null"], "minimum": 0, "maximum": 10**18 - 1}
    return {
        "type": "object",
        "required": ["sql"],
        "additionalProperties": False,
        "properties": {
            "sql": {"type": "string", "description": "One SELECT over the warehouse's tables, or SET for the session."},
            "max_staleness": {**duration, "description": "How old the answer may be: a duration, seconds, or any."},
            "deadline": {**duration, "description": "How long the answer may take at most."},
            "when_stale": {"enum": ["fail", "serve", "wait", None], "description": "What to do at the deadline."},
            "job": {**count, "description": "Read the snapshot of this job, whatever its age."},
            "session": {
                **_name(),
                "description": "Queries of one name share what SET says and never go back in time; they run one after "
                f"another. A session is forgotten after {limits.session_idle.total_seconds():g} s without a query.",
            },
            "format": {
                "enum": ["arrow", "json", None],
                "description": "By default what the header Accept names, else JSON.",
            },
            "limit": {
                **count,
                "description": f"The answer ends after so many rows. Without it, more than {limits.rows:,} are refused.",
            },
        },
    }


def _name() -> Schema:
    return {"type": ["string", "null"], "minLength": 1, "maxLength": LONGEST_NAME}


def _rows() -> Schema:
    column = {"type": "object", "properties": {"name": {"type": "string"}, "type": {"type": "string"}}}
    return {
        "type": "object",
        "required": ["columns", "rows", "receipt"],
        "properties": {
            "columns": {"type": "array", "items": column},
            "rows": {
                "type": "array",
                "items": {"type": "array"},
                "description": "A list per row. Decimals are texts, instants ISO 8601, binary values base64, maps lists of pairs.",
            },
            "receipt": {"anyOf": [{"$ref": "#/components/schemas/Receipt"}, {"type": "null"}]},
        },
    }


def _receipt() -> Schema:
    instant, seconds = {"type": ["string", "null"], "format": "date-time"}, {"type": ["number", "null"]}
    return {
        "type": "object",
        "description": "What was promised, what was achieved, and what it cost; durations are in seconds.",
        "properties": {
            "bound": {"type": "object"},
            "arrived_at": instant,
            "data_timestamp": instant,
            "staleness": seconds,
            "job": {"type": "integer"},
            "sources": {"type": "array", "items": {"type": "object"}},
            "waited": {"type": "object", "additionalProperties": {"type": "number"}},
            "rows_processed": {"type": "integer"},
            "jobs_run": {"type": "integer"},
            "shared_cut": {"type": "boolean"},
            "closed_job": {"type": "boolean"},
            "missed": {"type": "boolean"},
            "why_missed": {"type": ["string", "null"]},
            "decision": {"type": "string"},
            "platform": {"type": "string"},
            "why_platform": {"type": "string"},
            "notes": {"type": "array", "items": {"type": "string"}},
            "kept": {"type": "string"},
            "warnings": {"type": "array", "items": {"type": "string"}},
        },
    }
