"""PostgreSQL's functions of the catalog as DuckDB's macros over the mirror."""

from __future__ import annotations

_EVERYTHING_IS_ALLOWED = (
    "has_any_column_privilege",
    "has_column_privilege",
    "has_database_privilege",
    "has_function_privilege",
    "has_schema_privilege",
    "has_sequence_privilege",
    "has_table_privilege",
    "has_type_privilege",
    "pg_has_role",
)
_NOTHING = (
    "inet_client_addr()",
    "inet_client_port()",
    "inet_server_addr()",
    "inet_server_port()",
    "pg_get_function_arguments(a)",
    "pg_get_function_identity_arguments(a)",
    "pg_get_function_result(a)",
    "pg_get_function_sqlbody(a)",
    "pg_get_functiondef(a)",
    "pg_get_partkeydef(a)",
    "pg_get_ruledef(a, b := NULL)",
    "pg_get_serial_sequence(a, b)",
    "pg_get_statisticsobjdef_columns(a)",
    "pg_get_triggerdef(a, b := NULL)",
    "pg_tablespace_location(a)",
    "shobj_description(a, b)",
)

MACROS = (
    "pg_oid(a) AS CASE WHEN regexp_matches(CAST(a AS VARCHAR), '^[0-9]+$') THEN TRY_CAST(CAST(a AS VARCHAR) AS UINTEGER) "
    "ELSE (SELECT v.oid FROM mirror.headgate_names v WHERE v.name = replace(CAST(a AS VARCHAR), '\"', '') "
    "ORDER BY v.place LIMIT 1) END",
    *(f"{name}(a, b := NULL, c := NULL, d := NULL) AS true" for name in _EVERYTHING_IS_ALLOWED),
    *(f"{name} AS CAST(NULL AS VARCHAR)" for name in _NOTHING),
    "pg_is_in_recovery() AS false",
    "pg_is_other_temp_schema(a) AS false",
    "pg_my_temp_schema() AS CAST(0 AS UINTEGER)",
    "pg_relation_is_publishable(a) AS false",
    "row_security_active(a) AS false",
    "pg_encoding_to_char(a) AS 'UTF8'",
    "pg_char_to_encoding(a) AS 6",
    "pg_postmaster_start_time() AS current_timestamp",
    "txid_current() AS CAST(1 AS BIGINT)",
    "pg_relation_size(a, b := NULL) AS CAST(0 AS BIGINT)",
    "pg_total_relation_size(a) AS CAST(0 AS BIGINT)",
    "pg_table_size(a) AS CAST(0 AS BIGINT)",
    "pg_indexes_size(a) AS CAST(0 AS BIGINT)",
    "pg_database_size(a) AS CAST(0 AS BIGINT)",
    "pg_size_pretty(a) AS concat(a, ' bytes')",
    "pg_stat_get_numscans(a) AS CAST(0 AS BIGINT)",
    "pg_table_is_visible(a) AS EXISTS (SELECT 1 FROM mirror.pg_class v JOIN mirror.pg_namespace n ON n.oid = v.relnamespace "
    "WHERE v.oid = a AND n.nspname IN ('public', 'pg_catalog'))",
    "pg_type_is_visible(a) AS EXISTS (SELECT 1 FROM mirror.pg_type v WHERE v.oid = a)",
    "pg_function_is_visible(a) AS true",
    "pg_opclass_is_visible(a) AS true",
    "pg_operator_is_visible(a) AS true",
    "pg_collation_is_visible(a) AS true",
    "pg_conversion_is_visible(a) AS true",
    "pg_ts_config_is_visible(a) AS true",
    "pg_ts_dict_is_visible(a) AS true",
    "pg_ts_parser_is_visible(a) AS true",
    "pg_ts_template_is_visible(a) AS true",
    "pg_statistics_obj_is_visible(a) AS true",
    "pg_get_userbyid(a) AS (SELECT v.rolname FROM mirror.pg_roles v WHERE v.oid = a)",
    "pg_get_expr(a, b, c := NULL) AS a",
    "pg_get_viewdef(a, b := NULL) AS (SELECT v.definition FROM mirror.headgate_relations v WHERE v.oid = pg_oid(a))",
    "pg_get_constraintdef(a, b := NULL) AS (SELECT v.definition FROM mirror.headgate_constraints v WHERE v.oid = a)",
    "pg_get_indexdef(a, b := 0, c := NULL) AS (SELECT CASE WHEN b = 0 THEN v.definition ELSE v.columns[b] END "
    "FROM mirror.headgate_indexes v WHERE v.oid = a)",
    "obj_description(a, b := NULL) AS (SELECT v.description FROM mirror.pg_description v WHERE v.objoid = pg_oid(a) AND v.objsubid = 0)",
    "col_description(a, b) AS (SELECT v.description FROM mirror.pg_description v WHERE v.objoid = pg_oid(a) AND v.objsubid = b)",
    "to_regclass(a) AS pg_oid(a)",
    "pg_relation_name(a) AS (SELECT v.shown FROM mirror.headgate_relations v WHERE v.oid = a)",
    "pg_type_oid(a) AS (SELECT v.oid FROM mirror.headgate_types v "
    "WHERE v.name = replace(lower(CAST(a AS VARCHAR)), 'pg_catalog.', '') LIMIT 1)",
    "to_regtype(a) AS pg_type_oid(a)",
    "format_type(a, b) AS (SELECT CASE WHEN a = 1700 AND b > 4 THEN "
    "concat('numeric(', (b - 4) >> 16, ',', (b - 4) & 65535, ')') WHEN a = 1043 AND b > 4 THEN concat('character varying(', b - 4, ')') "
    "ELSE v.shown END FROM mirror.headgate_shown_types v WHERE v.oid = a)",
    "quote_ident(a) AS CASE WHEN regexp_full_match(a, '[a-z_][a-z0-9_$]*') THEN a ELSE concat('\"', replace(a, '\"', '\"\"'), '\"') END",
    "quote_literal(a) AS concat('''', replace(CAST(a AS VARCHAR), '''', ''''''), '''')",
    "array_upper(a, b) AS nullif(len(a), 0)",
    "array_lower(a, b) AS CASE WHEN len(a) > 0 THEN 1 END",
    "array_remove(a, b) AS [x FOR x IN a IF x IS DISTINCT FROM b]",
    "array_ndims(a) AS CASE WHEN len(a) > 0 THEN 1 END",
    "array_dims(a) AS CASE WHEN len(a) > 0 THEN concat('[1:', len(a), ']') END",
    "_pg_expandarray(a) AS unnest(list_transform(range(1, len(a) + 1), lambda i: struct_pack(x := a[i], n := i)))",
    "_pg_char_max_length(a, b) AS CAST(NULL AS INTEGER)",
    "_pg_numeric_precision(a, b) AS CAST(NULL AS INTEGER)",
    "_pg_numeric_scale(a, b) AS CAST(NULL AS INTEGER)",
    "pg_index_column_has_property(a, b, c) AS c = 'asc'",
    "pg_indexam_has_property(a, b) AS false",
)
"""In the order in which they use each other."""

NAMES = frozenset(macro.partition("(")[0] for macro in MACROS)
SESSION = frozenset(
    (
        "current_catalog",
        "current_database",
        "current_role",
        "current_schema",
        "current_schemas",
        "current_setting",
        "current_user",
        "pg_backend_pid",
        "session_user",
        "set_config",
        "user",
        "version",
    )
)
"""Functions of the connection that asks."""
