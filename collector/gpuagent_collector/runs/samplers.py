"""The sessions that sampled the machines of a run."""

from gpuagent_collector.query.ask import Ask
from gpuagent_collector.run_sessions import on_other_machine, takers


def sessions_of_run(ask: Ask, run_id: str) -> list[int]:
    """Return the sessions that sampled the machines of a run."""
    return sorted(row["session_id"] for row in ask(_SESSIONS_OF_RUN, [run_id]) if row["session_id"] is not None)


_SESSIONS_OF_RUN = f"""
WITH asked AS (SELECT CAST(? AS VARCHAR) AS run_id), {takers("SEMI JOIN asked USING (run_id)")}
SELECT session_id FROM takers
UNION
SELECT beside.session_id
FROM takers JOIN sessions AS own USING (session_id)
JOIN sessions AS beside ON beside.node_id = own.node_id AND NOT {on_other_machine("own", "beside")}"""  # noqa: S608 - names of the schema
