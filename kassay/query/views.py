"""The views: one for each record kind, typed by its fields, and what is asked for most, put together from them.

run, stage, made_in   before the fields of every record: whose it is, and the run that wrote it; a result that was
                      taken over has a row in each run that has it, and `made_in = run` counts it once
schema, nonfinite     after them; a number that was not finite is null, and is named there
"""

import types
import typing
from dataclasses import fields
from typing import Any

from kassay.query.index import SCHEMA, lines_of, quoted
from kassay.record import Record
from kassay.schemas import kinds, name_of

SQL = {str: "VARCHAR", int: "BIGINT", float: "DOUBLE", bool: "BOOLEAN"}
OWNED = "files"  # table: file, run, stage, made_in
OTHERS = "other_records"
OURS = '{"schema": "'
NO_LINES = "(SELECT NULL::JSON AS json, NULL::VARCHAR AS filename WHERE false)"
BEFORE = ("run", "stage", "made_in")
DOCS = {
    "runs": "one row a run: profile, plan, protocol, host, state, exit code",
    "stages": "one row a planned stage: outcome, reason, metrics, grant, times",
    "settings": "one row a symbol of a run: value and where it came from",
    "artifacts": "one row a file that a stage left, with its digest",
    "samples": "one row a timed repetition of timing and sweep cells, warm-ups and pilots included and marked",
    "gates": "every gate, with its numbers",
    "ratios": "one row a block of a comparison of speeds: within-block ratios",
    "fits": "one row a fitted law of saturation",
    OTHERS: "records of schemas that this kassay does not read, as JSON",
}
GATHERED = {
    "gates": "SELECT * FROM gate",
    "ratios": """
SELECT run, stage, made_in, 'contrast' AS kind, model, contrast AS comparison, candidate, control,
       NULL::VARCHAR AS load, 'tokens_per_s' AS quantity, unnest(valid_blocks) AS block, unnest(ratios) AS ratio
  FROM contrast WHERE ratios IS NOT NULL
UNION ALL BY NAME
SELECT run, stage, made_in, 'guard' AS kind, model, guard AS comparison, candidate, control,
       workload AS load, 'tokens_per_s' AS quantity, unnest(valid_blocks) AS block, unnest(ratios) AS ratio
  FROM guard
UNION ALL BY NAME
SELECT run, stage, made_in, 'matrix_row' AS kind, model, comparison, candidate, control,
       workload AS load, 'tokens_per_s' AS quantity, unnest(coalesce(counted, range(len(ratios)))) AS block,
       unnest(ratios) AS ratio
  FROM matrix_row LEFT JOIN (
    SELECT run, stage, made_in, model, load AS workload, list(block ORDER BY block) FILTER (valid) AS counted
      FROM block GROUP BY ALL
  ) USING (run, stage, made_in, model, workload) WHERE ratios IS NOT NULL
UNION ALL BY NAME
SELECT run, stage, made_in, 'serving_contrast' AS kind, NULL AS model, contrast AS comparison, candidate, control,
       load, quantity, unnest(range(len(ratios))) AS block, unnest(ratios) AS ratio
  FROM serving_contrast
UNION ALL BY NAME
SELECT run, stage, made_in, 'vllm_ratio' AS kind, NULL AS model, endpoint AS comparison, arm AS candidate, control,
       'batch ' || batch AS load, 'rate' AS quantity, unnest(range(len(ratios))) AS block, unnest(ratios) AS ratio
  FROM vllm_ratio
UNION ALL BY NAME
SELECT run, stage, made_in, 'composition' AS kind, model, NULL AS comparison, combined AS candidate, plain AS control,
       load, 'rho' AS quantity, unnest(valid_blocks) AS block, unnest(rhos) AS ratio
  FROM composition WHERE len(rhos) > 0""",
    "samples": """
SELECT run, stage, made_in, 'timing_cell' AS kind, model, recipe, batch, context_tokens, output_tokens,
       block, pilot, position, repetition, repetition < warmups AS warmup, elapsed_s, tokens,
       tokens / elapsed_s AS tokens_per_s
  FROM (SELECT *, unnest(range(len(started_ns))) AS repetition,
               (unnest(ended_ns) - unnest(started_ns)) / 1e9 AS elapsed_s, list_sum(unnest(request_tokens)) AS tokens
          FROM timing_cell)
UNION ALL BY NAME
SELECT run, stage, made_in, 'sweep_cell' AS kind, model, recipe, batch, context_tokens, output_tokens,
       NULL AS block, false AS pilot, NULL AS position, repetition, repetition < warmups AS warmup, elapsed_s,
       batch * output_tokens AS tokens, batch * output_tokens / elapsed_s AS tokens_per_s
  FROM (SELECT *, unnest(range(len(elapsed_ns))) AS repetition, unnest(elapsed_ns) / 1e9 AS elapsed_s
          FROM sweep_cell)""",
    "fits": """
SELECT run, stage, made_in, 'saturation' AS kind, model, recipe, context_tokens, 'hill of B, each context' AS law,
       residual_space, ceiling_per_s, ceiling_lower_per_s, ceiling_upper_per_s, half_batch, gamma, rms_log_residual,
       NULL::DOUBLE AS aicc, NULL::BOOLEAN AS best, state, flags
  FROM saturation
UNION ALL BY NAME
SELECT run, stage, made_in, 'saturation_law' AS kind, model, recipe, NULL AS context_tokens, law, residual_space,
       rms_log_residual, aicc, best, NULL AS state, flags, parameters
  FROM saturation_law""",
}


def sql_type(hint: Any) -> str:
    """The SQL type of a field as `json_transform` takes it. Raises TypeError for one that records do not use."""
    origin, parts = typing.get_origin(hint), typing.get_args(hint)
    if hint in SQL:
        return quoted_type(SQL[hint])
    if origin is typing.Literal:
        return quoted_type("VARCHAR")
    if origin in (types.UnionType, typing.Union):
        return sql_type(next(part for part in parts if part is not type(None)))
    if origin is list and (parts[0] in SQL or typing.get_origin(parts[0]) is list):
        return f"[{sql_type(parts[0])}]"
    if origin is dict and parts[1] in SQL:
        return quoted_type(f"MAP(VARCHAR, {SQL[parts[1]]})")
    if hint is Any or origin in (dict, list):
        return quoted_type("JSON")
    raise TypeError(f"{hint} is no type of a record's field")


def quoted_type(name: str) -> str:
    """A type inside JSON."""
    return f'"{name}"'


def of_kind(kind: type[Record], files: list[str]) -> str:
    """The query of a kind over the files that hold it; without any it has its columns and no rows."""
    hints = typing.get_type_hints(kind)
    names = [field.name for field in fields(kind)]
    structure = ", ".join(f'"{name}": {sql_type(hints[name])}' for name in names)
    before = [f"owner.{name}" for name in BEFORE if name not in names]
    shown = ", ".join([*before, *(f'record."{name}"' for name in names), "schema", "nonfinite"])
    source = lines_of(files) if files else NO_LINES
    of_this = is_of(kind.schema)
    # The condition stands twice: a filter on a field may be moved before WHERE, and other kinds lack the fields.
    return f"""
SELECT {shown} FROM (
  SELECT filename, CASE WHEN {of_this} THEN json_transform_strict(json, {quoted("{" + structure + "}")}) END AS record,
         {quoted(kind.schema)} AS schema, json_transform(json->'nonfinite', '["VARCHAR"]') AS nonfinite
    FROM {source} WHERE {of_this}
) JOIN {OWNED} AS owner ON filename = owner.file"""


def is_of(schema: str) -> str:
    """The condition of a schema. Our writers begin a line as OURS does, which is found without reading the rest."""
    begin = f'{OURS}{schema}"'
    return f"""CASE WHEN starts_with(json::VARCHAR, {quoted(OURS)}) THEN starts_with(json::VARCHAR, {quoted(begin)})
 ELSE {SCHEMA} = {quoted(schema)} END"""


def others(files: list[str]) -> str:
    """The query of whatever this kassay does not read."""
    known = ", ".join(quoted(kind.schema) for kind in kinds())
    source = lines_of(files) if files else NO_LINES
    return f"""
SELECT owner.run, owner.stage, owner.made_in, schema, json AS body
  FROM (SELECT filename, json, {SCHEMA} AS schema FROM {source} WHERE ({SCHEMA}) NOT IN ({known}))
  JOIN {OWNED} AS owner ON filename = owner.file"""


def all_views(holders: dict[str, list[str]]) -> dict[str, str]:
    """View -> its query; `holders` names the files that hold a schema."""
    made = {name_of(kind): of_kind(kind, holders.get(kind.schema, [])) for kind in kinds()}
    known = {kind.schema for kind in kinds()}
    strange = sorted({file for schema, files in holders.items() if schema not in known for file in files})
    return {**made, OTHERS: others(strange), **GATHERED}


def meaning(view: str) -> str:
    """One sentence on a view."""
    docs = {name_of(kind): (kind.__doc__ or "").splitlines()[0] for kind in kinds()}
    return DOCS.get(view) or docs[view]
