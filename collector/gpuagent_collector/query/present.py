"""The session that describes each node now."""

# Common table expressions: `present` has a row for each node, the columns of `sessions`, and
#   last_seen_at: UTC, when anything of the node was last committed; NULL: never
#   ended_at: UTC, when that session's agent stopped in good order; NULL: it runs, or ended without a goodbye
# A pod that measures itself beside the node's own agent knows less of the node, and began later. So of the sessions
# that still deliver the first one counts; where none does, the last that did.
PRESENT_SQL = """
delivered AS (
    SELECT session_id, max(committed_at) AS committed_at FROM marks GROUP BY session_id
), ends AS (
    SELECT session_id, max(time) AS ended_at FROM session_ends GROUP BY session_id
), every AS (
    SELECT *, max(committed_at) OVER (PARTITION BY node_id) AS last_seen_at
    FROM sessions LEFT JOIN delivered USING (session_id) LEFT JOIN ends USING (session_id)
), present AS (
    SELECT * EXCLUDE (committed_at)
    FROM every
    QUALIFY row_number() OVER (
        PARTITION BY node_id
        ORDER BY
            CASE WHEN ended_at IS NULL AND committed_at > last_seen_at - INTERVAL 1 MINUTE THEN started_at END
            NULLS LAST,
            greatest(committed_at, started_at) DESC, session_id
    ) = 1
)
""".strip()
