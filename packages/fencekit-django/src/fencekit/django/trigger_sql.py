"""The statements of the fence trigger on PostgreSQL.

``fencekit_2_refuse`` compares in its WHEN clause, which PostgreSQL keeps by column, not by name: a
write that does not lower the fence never enters the function, and a renamed column stays guarded.

Whether a statement *names* the fence column cannot be seen in a row whose fence stays the same, but
a trigger ``UPDATE OF`` that column knows. So in a strict table ``fencekit_1_named`` leaves a note
for ``fencekit_3_strict``, which fires for the same row right after, in the order of their names.
Notes and tokens are settings local to the transaction; an aborted savepoint takes back its own.
"""

from __future__ import annotations

from typing import Final

from fencekit.django.refusals import SQLSTATE

__all__ = ["DROP_FUNCTIONS", "FUNCTIONS", "create", "drop"]

_TRIGGERS: Final = ("fencekit_1_named", "fencekit_2_refuse", "fencekit_3_strict")

FUNCTIONS: Final = f"""
CREATE OR REPLACE FUNCTION fencekit_refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'fencekit: % refuses a fence that goes down', TG_TABLE_NAME
    USING ERRCODE = '{SQLSTATE}', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA,
        DETAIL = json_build_object(
            'table', TG_TABLE_NAME,
            'shown', COALESCE((to_jsonb(NEW) ->> TG_ARGV[0])::bigint, 0),
            'stored', (to_jsonb(OLD) ->> TG_ARGV[0])::bigint
        )::text;
END $$;
CREATE OR REPLACE FUNCTION fencekit_named() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('fencekit.named', 'yes', true);
    RETURN NEW;
END $$;
CREATE OR REPLACE FUNCTION fencekit_strict() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    named text := current_setting('fencekit.named', true);
    shown bigint := NULLIF(current_setting('fencekit.token', true), '')::bigint;
    stored bigint := (to_jsonb(OLD) ->> TG_ARGV[0])::bigint;
BEGIN
    IF named = 'yes' THEN
        PERFORM set_config('fencekit.named', '', true);
        RETURN NEW;
    END IF;
    IF shown >= stored THEN
        RETURN NEW;
    END IF;
    RAISE EXCEPTION 'fencekit: % refuses a write that shows no token or an old one', TG_TABLE_NAME
    USING ERRCODE = '{SQLSTATE}', TABLE = TG_TABLE_NAME, SCHEMA = TG_TABLE_SCHEMA,
        DETAIL = json_build_object(
            'table', TG_TABLE_NAME, 'shown', shown, 'stored', stored
        )::text;
END $$;
"""

# The functions serve every table, and go with the last trigger.
DROP_FUNCTIONS: Final = """
DO $$
DECLARE
    name text;
BEGIN
    FOREACH name IN ARRAY ARRAY['fencekit_refuse', 'fencekit_named', 'fencekit_strict'] LOOP
        IF NOT EXISTS (SELECT 1 FROM pg_trigger WHERE tgfoid = to_regproc(name)) THEN
            EXECUTE format('DROP FUNCTION IF EXISTS %I()', name);
        END IF;
    END LOOP;
END $$
"""


def drop(table: str) -> str:
    """Drop whatever trigger a table has; the name is quoted."""
    return ";".join(f"DROP TRIGGER IF EXISTS {name} ON {table}" for name in _TRIGGERS)


def create(table: str, column: str, name: str, *, strict: bool) -> list[str]:
    """Create a table's triggers.

    Args:
        table: the table, quoted.
        column: the fence column, quoted.
        name: the fence column, not quoted.
        strict: whether a write must show a token.
    """
    argument = "'" + name.replace("'", "''") + "'"
    named, refuse, judge = _TRIGGERS
    on_update = f"BEFORE UPDATE ON {table} FOR EACH ROW"
    call_refuse = f"EXECUTE FUNCTION fencekit_refuse({argument})"
    lowers = f"NEW.{column} < OLD.{column}"
    statements = [
        f"CREATE TRIGGER {refuse} {on_update} WHEN ({lowers}) {call_refuse}",
    ]
    if strict:
        on_naming = f"BEFORE UPDATE OF {column} ON {table} FOR EACH ROW"
        statements += [
            f"CREATE TRIGGER {named} {on_naming} EXECUTE FUNCTION fencekit_named()",
            f"CREATE TRIGGER {judge} {on_update} EXECUTE FUNCTION fencekit_strict({argument})",
        ]
    return statements
