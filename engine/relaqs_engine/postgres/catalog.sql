-- What this server has of Postgres's own tables. Two tables are filled in: shown_table and shown_column, with
-- the names and types of the warehouse. All else follows from them, or is empty.

CREATE SCHEMA pg;
CREATE SCHEMA info;

CREATE TABLE shown_table (oid BIGINT, name VARCHAR, row_count BIGINT);
CREATE TABLE shown_column (
    table_oid BIGINT, position INTEGER, name VARCHAR, type_oid BIGINT, modifier INTEGER, sql_type VARCHAR
);
CREATE TABLE shown_type (oid BIGINT, name VARCHAR, sql_name VARCHAR, size INTEGER, array_oid BIGINT);
CREATE VIEW any_type AS  -- also those of arrays
SELECT oid, name, sql_name, size FROM shown_type
UNION ALL SELECT array_oid, '_' || name, 'ARRAY', -1 FROM shown_type WHERE array_oid > 0;
CREATE TABLE shown_relation (oid BIGINT, name VARCHAR);  -- of Postgres itself, such as pg.pg_class
CREATE TABLE shown_user (oid BIGINT, name VARCHAR);
CREATE TABLE shown_setting (name VARCHAR, value VARCHAR);

CREATE VIEW pg.pg_namespace AS
SELECT * FROM (VALUES (11, 'pg_catalog'), (2200, 'public'), (13000, 'information_schema')) AS v(oid, nspname),
    (VALUES (10::BIGINT, NULL::VARCHAR[])) AS w(nspowner, nspacl);

CREATE VIEW pg.pg_class AS
SELECT oid, name AS relname, 2200 AS relnamespace, 0 AS reltype, 0 AS reloftype, 10::BIGINT AS relowner, 2 AS relam,
    oid AS relfilenode, 0 AS reltablespace, 0 AS relpages, row_count::FLOAT AS reltuples, 0 AS relallvisible,
    0 AS reltoastrelid, false AS relhasindex, false AS relisshared, 'p' AS relpersistence, 'r' AS relkind,
    (SELECT count(*) FROM shown_column AS c WHERE c.table_oid = t.oid)::SMALLINT AS relnatts,
    0::SMALLINT AS relchecks, false AS relhasrules, false AS relhastriggers, false AS relhassubclass,
    false AS relrowsecurity, false AS relforcerowsecurity, true AS relispopulated, 'd' AS relreplident,
    false AS relispartition, false AS relhasoids, 0 AS relrewrite, 0 AS relfrozenxid, 0 AS relminmxid,
    NULL::VARCHAR[] AS relacl, NULL::VARCHAR[] AS reloptions, NULL::VARCHAR AS relpartbound
FROM shown_table AS t;

CREATE VIEW pg.pg_attribute AS
SELECT c.table_oid AS attrelid, c.name AS attname, c.type_oid AS atttypid, -1 AS attstattarget,
    t.size::SMALLINT AS attlen, c.position::SMALLINT AS attnum, (t.sql_name = 'ARRAY')::INTEGER AS attndims, -1 AS attcacheoff,
    c.modifier AS atttypmod, false AS attbyval, 'p' AS attstorage, 'i' AS attalign, '' AS attcompression,
    false AS attnotnull, false AS atthasdef, false AS atthasmissing, '' AS attidentity, '' AS attgenerated,
    false AS attisdropped, true AS attislocal, 0 AS attinhcount, 0::BIGINT AS attcollation,
    NULL::VARCHAR[] AS attacl, NULL::VARCHAR[] AS attoptions, NULL::VARCHAR[] AS attfdwoptions,
    NULL::VARCHAR AS attmissingval
FROM shown_column AS c JOIN any_type AS t ON t.oid = c.type_oid;

CREATE VIEW pg.pg_type AS
SELECT oid, name AS typname, 11 AS typnamespace, 10::BIGINT AS typowner, size::SMALLINT AS typlen, false AS typbyval,
    'b' AS typtype,
    CASE WHEN name IN ('int2', 'int4', 'int8', 'float4', 'float8', 'numeric', 'oid') THEN 'N'
        WHEN name IN ('date', 'time', 'timestamp', 'timestamptz') THEN 'D' WHEN name = 'bool' THEN 'B'
        WHEN name = 'interval' THEN 'T' WHEN name IN ('text', 'varchar', 'bpchar', 'name') THEN 'S'
        ELSE 'U' END AS typcategory,
    false AS typispreferred, true AS typisdefined, ',' AS typdelim, 0::BIGINT AS typrelid, 0::BIGINT AS typelem,
    array_oid AS typarray, stem || 'in' AS typinput, stem || 'out' AS typoutput, stem || 'recv' AS typreceive,
    stem || 'send' AS typsend, '-' AS typmodin, '-' AS typmodout, '-' AS typanalyze, '-' AS typsubscript,
    'i' AS typalign, 'p' AS typstorage, false AS typnotnull, 0::BIGINT AS typbasetype, -1 AS typtypmod, 0 AS typndims,
    0::BIGINT AS typcollation, NULL::VARCHAR AS typdefaultbin, NULL::VARCHAR AS typdefault, NULL::VARCHAR[] AS typacl
FROM (
    -- Functions of these types have an underscore in their names, as date_recv.
    SELECT *, name || CASE WHEN name IN ('date', 'interval', 'json', 'numeric', 'time', 'timestamp', 'timestamptz',
        'uuid') THEN '_' ELSE '' END AS stem
    FROM shown_type)
UNION ALL
SELECT array_oid, '_' || name, 11, 10, -1, false, 'b', 'A', false, true, ',', 0, oid, 0, 'array_in', 'array_out',
    'array_recv', 'array_send', '-', '-', '-', '-', 'i', 'x', false, 0, -1, 0, 0, NULL, NULL, NULL
FROM shown_type WHERE array_oid > 0;

CREATE VIEW pg.pg_database AS
SELECT 5::BIGINT AS oid, 'relaqs' AS datname, 10::BIGINT AS datdba, 6 AS encoding, 'c' AS datlocprovider,
    false AS datistemplate, true AS datallowconn, -1 AS datconnlimit, 1663::BIGINT AS dattablespace,
    'C' AS datcollate, 'C' AS datctype, NULL::VARCHAR AS daticulocale, NULL::VARCHAR AS datcollversion,
    0 AS datfrozenxid, 0 AS datminmxid, NULL::VARCHAR[] AS datacl;

CREATE VIEW pg.pg_roles AS
SELECT oid, name AS rolname, false AS rolsuper, true AS rolinherit, false AS rolcreaterole, false AS rolcreatedb,
    true AS rolcanlogin, false AS rolreplication, -1 AS rolconnlimit, '********' AS rolpassword,
    NULL::TIMESTAMP AS rolvaliduntil, false AS rolbypassrls, NULL::VARCHAR[] AS rolconfig
FROM shown_user;

CREATE VIEW pg.pg_user AS
SELECT name AS usename, oid AS usesysid, false AS usecreatedb, false AS usesuper, false AS userepl,
    false AS usebypassrls, '********' AS passwd, NULL::TIMESTAMP AS valuntil, NULL::VARCHAR[] AS useconfig
FROM shown_user;

CREATE VIEW pg.pg_settings AS
SELECT name, if(name = 'timezone', current_setting('TimeZone'), value) AS setting, NULL::VARCHAR AS unit, '' AS category, '' AS short_desc, 'user' AS context,
    'string' AS vartype, 'default' AS source, NULL::VARCHAR AS min_val, NULL::VARCHAR AS max_val,
    NULL::VARCHAR[] AS enumvals, value AS boot_val, value AS reset_val, NULL::VARCHAR AS sourcefile,
    NULL::INTEGER AS sourceline, false AS pending_restart, NULL::VARCHAR AS extra_desc
FROM shown_setting;
CREATE VIEW pg.pg_show_all_settings AS FROM pg.pg_settings;

CREATE VIEW pg.pg_tables AS
SELECT 'public' AS schemaname, name AS tablename, 'relaqs' AS tableowner, NULL::VARCHAR AS tablespace,
    false AS hasindexes, false AS hasrules, false AS hastriggers, false AS rowsecurity
FROM shown_table;

CREATE VIEW pg.pg_stat_user_tables AS
SELECT oid AS relid, 'public' AS schemaname, name AS relname, 0 AS seq_scan, 0 AS seq_tup_read, 0 AS idx_scan,
    0 AS idx_tup_fetch, 0 AS n_tup_ins, 0 AS n_tup_upd, 0 AS n_tup_del, 0 AS n_tup_hot_upd,
    row_count AS n_live_tup, 0 AS n_dead_tup, 0 AS n_mod_since_analyze, 0 AS n_ins_since_vacuum,
    NULL::TIMESTAMPTZ AS last_vacuum, NULL::TIMESTAMPTZ AS last_autovacuum, NULL::TIMESTAMPTZ AS last_analyze,
    NULL::TIMESTAMPTZ AS last_autoanalyze, 0 AS vacuum_count, 0 AS autovacuum_count, 0 AS analyze_count,
    0 AS autoanalyze_count
FROM shown_table;

CREATE TABLE pg.pg_get_keywords AS
SELECT keyword_name AS word, upper(keyword_category[1]) AS catcode, true AS barelabel, keyword_category AS catdesc,
    'can be bare label' AS baredesc
FROM duckdb_keywords();

CREATE VIEW pg.pg_am AS SELECT 2 AS oid, 'heap' AS amname, '-' AS amhandler, 't' AS amtype;
CREATE VIEW pg.pg_tablespace AS
SELECT 1663 AS oid, 'pg_default' AS spcname, 10::BIGINT AS spcowner, NULL::VARCHAR[] AS spcacl, NULL::VARCHAR[] AS spcoptions;
CREATE VIEW pg.pg_language AS
SELECT 12 AS oid, 'internal' AS lanname, 10::BIGINT AS lanowner, false AS lanispl, false AS lanpltrusted,
    0::BIGINT AS lanplcallfoid, 0::BIGINT AS laninline, 2246::BIGINT AS lanvalidator, NULL::VARCHAR[] AS lanacl;

CREATE VIEW info.schemata AS
SELECT 'relaqs' AS catalog_name, nspname AS schema_name, 'relaqs' AS schema_owner,
    NULL::VARCHAR AS default_character_set_catalog, NULL::VARCHAR AS default_character_set_schema,
    NULL::VARCHAR AS default_character_set_name, NULL::VARCHAR AS sql_path
FROM pg.pg_namespace;

CREATE VIEW info.tables AS
SELECT 'relaqs' AS table_catalog, 'public' AS table_schema, name AS table_name, 'BASE TABLE' AS table_type,
    NULL::VARCHAR AS self_referencing_column_name, NULL::VARCHAR AS reference_generation,
    NULL::VARCHAR AS user_defined_type_catalog, NULL::VARCHAR AS user_defined_type_schema,
    NULL::VARCHAR AS user_defined_type_name, 'NO' AS is_insertable_into, 'NO' AS is_typed,
    NULL::VARCHAR AS commit_action
FROM shown_table;

CREATE VIEW info.columns AS
SELECT 'relaqs' AS table_catalog, 'public' AS table_schema, t.name AS table_name, c.name AS column_name,
    c.position AS ordinal_position, NULL::VARCHAR AS column_default, 'YES' AS is_nullable, c.sql_type AS data_type,
    NULL::INTEGER AS character_maximum_length, NULL::INTEGER AS character_octet_length,
    CASE WHEN c.modifier > 4 THEN (c.modifier - 4) >> 16 WHEN y.size > 0 THEN y.size * 8 END AS numeric_precision,
    CASE WHEN y.name LIKE 'int_' THEN 2 WHEN y.name = 'numeric' THEN 10 END AS numeric_precision_radix,
    CASE WHEN c.modifier > 4 THEN (c.modifier - 4) & 65535 WHEN y.name LIKE 'int_' THEN 0 END AS numeric_scale,
    CASE WHEN y.name LIKE 'time%' THEN 6 END AS datetime_precision, NULL::VARCHAR AS interval_type,
    NULL::INTEGER AS interval_precision, NULL::VARCHAR AS character_set_catalog,
    NULL::VARCHAR AS character_set_schema, NULL::VARCHAR AS character_set_name,
    NULL::VARCHAR AS collation_catalog, NULL::VARCHAR AS collation_schema, NULL::VARCHAR AS collation_name,
    NULL::VARCHAR AS domain_catalog, NULL::VARCHAR AS domain_schema, NULL::VARCHAR AS domain_name,
    'relaqs' AS udt_catalog, 'pg_catalog' AS udt_schema, y.name AS udt_name, NULL::VARCHAR AS scope_catalog,
    NULL::VARCHAR AS scope_schema, NULL::VARCHAR AS scope_name, NULL::INTEGER AS maximum_cardinality,
    c.position::VARCHAR AS dtd_identifier, 'NO' AS is_self_referencing, 'NO' AS is_identity,
    NULL::VARCHAR AS identity_generation, NULL::VARCHAR AS identity_start, NULL::VARCHAR AS identity_increment,
    NULL::VARCHAR AS identity_maximum, NULL::VARCHAR AS identity_minimum, 'NO' AS identity_cycle,
    'NEVER' AS is_generated, NULL::VARCHAR AS generation_expression, 'NO' AS is_updatable
FROM shown_column AS c JOIN shown_table AS t ON t.oid = c.table_oid JOIN any_type AS y ON y.oid = c.type_oid;

CREATE VIEW info.table_privileges AS
SELECT u.name AS grantor, u.name AS grantee, 'relaqs' AS table_catalog, 'public' AS table_schema,
    t.name AS table_name, 'SELECT' AS privilege_type, 'NO' AS is_grantable, 'YES' AS with_hierarchy
FROM shown_table AS t, shown_user AS u;

-- Functions. What asks for rights is answered with yes for reading and no for all else; comments are none.
CREATE MACRO bpchar(x) AS x::VARCHAR;
CREATE MACRO pg_get_userbyid(o) AS 'relaqs';
CREATE MACRO format_type(o, m) AS (
    SELECT CASE WHEN t.name = 'numeric' AND m > 4
        THEN 'numeric(' || (((m - 4) >> 16)::VARCHAR) || ',' || (((m - 4) & 65535)::VARCHAR) || ')'
        WHEN a.name = 'numeric' AND m > 4
        THEN 'numeric(' || (((m - 4) >> 16)::VARCHAR) || ',' || (((m - 4) & 65535)::VARCHAR) || ')[]'
        ELSE coalesce(max(t.sql_name), max(a.sql_name) || '[]', '???') END
    FROM (SELECT o AS asked) AS q LEFT JOIN shown_type AS t ON t.oid = q.asked
        LEFT JOIN shown_type AS a ON a.array_oid = q.asked GROUP BY t.name, a.name
);
CREATE MACRO pg_table_is_visible(o) AS true;
CREATE MACRO pg_type_is_visible(o) AS true;
CREATE MACRO pg_function_is_visible(o) AS true;
CREATE MACRO pg_operator_is_visible(o) AS true;
CREATE MACRO pg_collation_is_visible(o) AS true;
CREATE MACRO pg_ts_config_is_visible(o) AS true;
CREATE MACRO pg_conversion_is_visible(o) AS true;
CREATE MACRO pg_opclass_is_visible(o) AS true;
CREATE MACRO pg_opfamily_is_visible(o) AS true;
CREATE MACRO pg_statistics_obj_is_visible(o) AS true;
CREATE MACRO pg_ts_parser_is_visible(o) AS true;
CREATE MACRO pg_ts_dict_is_visible(o) AS true;
CREATE MACRO pg_ts_template_is_visible(o) AS true;
CREATE MACRO getdatabaseencoding() AS 'UTF8';
CREATE MACRO pg_get_function_sqlbody(o) AS NULL::VARCHAR;
CREATE MACRO pg_is_in_recovery() AS false;
CREATE MACRO txid_current_if_assigned() AS NULL::BIGINT;
CREATE MACRO pg_current_xact_id_if_assigned() AS NULL::BIGINT;
CREATE MACRO pg_backend_pid() AS 0;
CREATE MACRO pg_my_temp_schema() AS 0;
CREATE MACRO pg_is_other_temp_schema(o) AS false;
CREATE MACRO pg_encoding_to_char(e) AS 'UTF8';
CREATE MACRO pg_char_to_encoding(e) AS 6;
CREATE MACRO pg_get_expr(e, r) AS NULL::VARCHAR, (e, r, p) AS NULL::VARCHAR;
CREATE MACRO pg_get_constraintdef(o) AS NULL::VARCHAR, (o, p) AS NULL::VARCHAR;
CREATE MACRO pg_get_indexdef(o) AS NULL::VARCHAR, (o, c, p) AS NULL::VARCHAR;
CREATE MACRO pg_get_viewdef(o) AS NULL::VARCHAR, (o, p) AS NULL::VARCHAR;
CREATE MACRO pg_get_ruledef(o) AS NULL::VARCHAR, (o, p) AS NULL::VARCHAR;
CREATE MACRO pg_get_triggerdef(o) AS NULL::VARCHAR, (o, p) AS NULL::VARCHAR;
CREATE MACRO pg_get_function_result(o) AS NULL::VARCHAR;
CREATE MACRO pg_get_function_arguments(o) AS NULL::VARCHAR;
CREATE MACRO pg_get_function_identity_arguments(o) AS NULL::VARCHAR;
CREATE MACRO pg_get_functiondef(o) AS NULL::VARCHAR;
CREATE MACRO pg_get_statisticsobjdef_columns(o) AS NULL::VARCHAR;
CREATE MACRO pg_get_partkeydef(o) AS NULL::VARCHAR;
CREATE MACRO pg_get_serial_sequence(t, c) AS NULL::VARCHAR;
CREATE MACRO pg_relation_is_publishable(o) AS false;
CREATE MACRO pg_relation_size(o) AS 0;
CREATE MACRO pg_table_size(o) AS 0;
CREATE MACRO pg_indexes_size(o) AS 0;
CREATE MACRO pg_total_relation_size(o) AS 0;
CREATE MACRO pg_database_size(o) AS 0;
CREATE MACRO pg_tablespace_location(o) AS '';
CREATE MACRO pg_postmaster_start_time() AS NULL::TIMESTAMP;
CREATE MACRO pg_advisory_unlock_all() AS NULL::VARCHAR;
CREATE MACRO obj_description(o) AS NULL::VARCHAR, (o, c) AS NULL::VARCHAR;
CREATE MACRO shobj_description(o, c) AS NULL::VARCHAR;
CREATE MACRO col_description(o, c) AS NULL::VARCHAR;
CREATE MACRO has_database_privilege(d, p) AS true, (u, d, p) AS true;
CREATE MACRO has_schema_privilege(s, p) AS lower(p) = 'usage', (u, s, p) AS lower(p) = 'usage';
CREATE MACRO has_table_privilege(t, p) AS lower(p) = 'select', (u, t, p) AS lower(p) = 'select';
CREATE MACRO has_any_column_privilege(t, p) AS lower(p) = 'select', (u, t, p) AS lower(p) = 'select';
CREATE MACRO has_column_privilege(t, c, p) AS lower(p) = 'select', (u, t, c, p) AS lower(p) = 'select';
CREATE MACRO has_function_privilege(f, p) AS false, (u, f, p) AS false;
CREATE MACRO quote_ident(n) AS
    CASE WHEN regexp_full_match(n, '[a-z_][a-z0-9_$]*') THEN n ELSE '"' || replace(n, '"', '""') || '"' END;
CREATE MACRO quote_literal(t) AS '''' || replace(t, '''', '''''') || '''';
CREATE MACRO parse_ident(n) AS [replace(each, '"', '') FOR each IN string_split(n, '.')];
CREATE MACRO to_regclass(n) AS (
    SELECT max(oid) FROM (
        SELECT oid, name FROM shown_table UNION ALL SELECT oid, regexp_replace(name, '^pg\.', '') FROM shown_relation
    ) WHERE lower(name) = lower(regexp_replace(replace(n, '"', ''), '^(public|pg_catalog)\.', ''))
);
CREATE MACRO to_regrole(n) AS (SELECT max(oid) FROM shown_user WHERE name = n);
CREATE MACRO to_regtype(n) AS (
    SELECT max(oid) FROM shown_type
    WHERE regexp_replace(replace(lower(n), '"', ''), '^pg_catalog\.', '') IN (name, sql_name)
);
CREATE MACRO to_regnamespace(n) AS (SELECT max(oid) FROM pg.pg_namespace WHERE nspname = n);
CREATE MACRO to_regproc(n) AS NULL::BIGINT;  -- functions are not listed
CREATE MACRO name_of_function(o) AS CASE WHEN o::VARCHAR = '0' THEN '-' ELSE o::VARCHAR END;
CREATE MACRO acldefault(k, o) AS NULL::VARCHAR[];
CREATE MACRO name_of_class(o) AS (
    SELECT max(name) FROM (
        SELECT oid, name FROM shown_table UNION ALL SELECT oid, regexp_replace(name, '^pg\.', '') FROM shown_relation
    ) WHERE oid = o
);
CREATE MACRO name_of_type(o) AS (SELECT max(sql_name) FROM shown_type WHERE oid = o);
CREATE MACRO name_of_namespace(o) AS (SELECT max(nspname) FROM pg.pg_namespace WHERE oid = o);
CREATE MACRO array_upper(l, d) AS nullif(len(l), 0);
CREATE MACRO array_lower(l, d) AS CASE WHEN len(l) > 0 THEN 1 END;
CREATE MACRO array_remove(l, v) AS list_filter(l, lambda each : each IS DISTINCT FROM v);
CREATE MACRO pg_size_pretty(n) AS CASE WHEN abs(n) < 10240 THEN n::VARCHAR || ' bytes'
    WHEN abs(n) < 10485248 THEN round(n / 1024)::BIGINT || ' kB'
    WHEN abs(n) < 10736893952 THEN round(n / 1048576)::BIGINT || ' MB'
    WHEN abs(n) < 10994579406848 THEN round(n / 1073741824)::BIGINT || ' GB'
    ELSE round(n / 1099511627776)::BIGINT || ' TB' END;
CREATE MACRO pg_get_partition_constraintdef(o) AS NULL::VARCHAR;
CREATE MACRO pg_stat_get_numscans(o) AS 0;
CREATE MACRO _pg_expandarray(a) AS struct_pack(x := NULL::BIGINT, n := NULL::BIGINT);
CREATE MACRO _pg_char_max_length(t, m) AS NULL::INTEGER;
CREATE MACRO string_to_array(t, d) AS string_split(t, d);
CREATE MACRO pg_typeof(v) AS lower(typeof(v));
CREATE MACRO aclexplode(a) AS unnest(
    []::STRUCT(grantor BIGINT, grantee BIGINT, privilege_type VARCHAR, is_grantable BOOLEAN)[]);
CREATE MACRO pg_blocking_pids(p) AS []::BIGINT[];
CREATE MACRO oidvectortypes(v) AS NULL::VARCHAR;
CREATE MACRO host(a) AS NULL::VARCHAR;
CREATE MACRO to_char(v, form) AS v::VARCHAR;
CREATE MACRO inet_client_addr() AS NULL::VARCHAR;
CREATE MACRO inet_client_port() AS NULL::INTEGER;
CREATE MACRO inet_server_addr() AS NULL::VARCHAR;
CREATE MACRO inet_server_port() AS NULL::INTEGER;
CREATE MACRO pg_is_wal_replay_paused() AS false;
CREATE MACRO pg_has_role(r, p) AS true, (u, r, p) AS true;
