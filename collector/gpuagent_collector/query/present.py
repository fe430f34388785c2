"""The session that describes each node now, and the machines that have the same identity."""

from gpuagent_collector.run_sessions import are_rivals, spans

# Common table expressions: `present` has a row for each node, the columns of `sessions`, and
#   last_seen_at: UTC, when anything of the node was last committed; NULL: never
#   ended_at: UTC, when that session's agent stopped in good order, by its own clock; NULL: it runs, or ended without a
#     goodbye
#   clock_offset_seconds: the collector's clock less the node's; NULL: unknown
# `rivals` has the sessions of other machines that had the same identity at the same time and delivered in the last five
# minutes, as node_id, session_id, hostname: a clone that was given an identity of its own is no rival any more. `twins`
# has their hostnames, as node_id, same_identity.
# A pod that measures itself beside the node's own agent knows less of the node, and began later. So of the sessions
# that still deliver the first one counts; where none does, the last that did.
PRESENT_SQL = f"""
delivered AS (
    SELECT session_id, max(committed_at) AS committed_at FROM marks GROUP BY session_id
), ends AS (
    SELECT session_id, max(time) AS ended_at FROM session_ends GROUP BY session_id
), every AS (
    SELECT *, max(committed_at) OVER (PARTITION BY node_id) AS last_seen_at
    FROM sessions LEFT JOIN delivered USING (session_id) LEFT JOIN ends USING (session_id)
), newest AS (
    SELECT * EXCLUDE (committed_at)
    FROM every
    QUALIFY row_number() OVER (
        PARTITION BY node_id
        ORDER BY
            CASE WHEN ended_at IS NULL AND committed_at > last_seen_at - INTERVAL 1 MINUTE THEN started_at END
            NULLS LAST,
            greatest(committed_at, started_at) DESC, session_id
    ) = 1
), clocks AS (
    SELECT session_id, arg_max(offset_seconds, time) AS clock_offset_seconds
    FROM clock_offsets SEMI JOIN newest USING (session_id) GROUP BY session_id
), present AS (
    SELECT * FROM newest LEFT JOIN clocks USING (session_id)
), near AS (  -- few, so that hardly anything is read to find rivals
    SELECT node_id, session_id FROM every WHERE committed_at > now()::TIMESTAMP - INTERVAL 5 MINUTES
    QUALIFY count(*) OVER (PARTITION BY node_id) > 1
), {spans("SEMI JOIN near USING (session_id)")}, rivals AS (
    SELECT own.node_id, other.session_id, other.hostname
    FROM present JOIN spans AS own USING (session_id) JOIN spans AS other ON {are_rivals("own", "other")}
), twins AS (
    SELECT node_id, list_sort((list(DISTINCT coalesce(hostname, 'unnamed')))[1:4]) AS same_identity
    FROM rivals GROUP BY node_id
)
""".strip()  # noqa: S608 - names of the schema
