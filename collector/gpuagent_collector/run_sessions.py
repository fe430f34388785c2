"""Sessions: who is rival to whom, and which session describes each node now."""


def takers(among: str = "") -> str:
    """Return a common table expression: run_id, session_id and node_id of the agent processes that took part in runs.

    `among` follows each table's name, to choose runs.
    """
    return f"""takers AS (
    SELECT run_id, session_id, node_id FROM run_requests {among}
    UNION
    SELECT run_id, session_id, node_id FROM run_devices {among}
    UNION
    SELECT run_id, session_id, node_id FROM run_states {among} WHERE session_id IS NOT NULL
)"""  # noqa: S608 - names of the schema


def on_other_machine(one: str, other: str) -> str:
    """Return SQL that is true for sessions of one node that two machines, or two boots of one, must have had.

    For others it is false, never NULL. `one` and `other` are aliases of rows with columns of `sessions`. The server has
    the same rule for connected agents (`AgentStream.is_of_other_machine`).
    """
    contained = f"coalesce({one}.container, 'none') <> 'none' OR coalesce({other}.container, 'none') <> 'none'"
    return f"""coalesce(CASE
            WHEN {one}.boot_id IS NOT NULL AND {other}.boot_id IS NOT NULL THEN {one}.boot_id <> {other}.boot_id
            ELSE {one}.hostname <> {other}.hostname AND NOT ({contained}) END, false)"""


def spans(among: str = "") -> str:
    """Return a common table expression: the known time of each session, `since` to `until`.

    An agent that did not end in good order was last heard when it spoke of a run, or compared clocks, about once a
    minute. Not when something of it was committed: the next agent of the node delivers
    what it left. `among` follows each table's name, to choose sessions.
    """
    return f"""heard AS (
    SELECT session_id, max(time) AS time
    FROM (
        SELECT session_id, time FROM clock_offsets {among}
        UNION ALL
        SELECT session_id, time FROM run_states {among} WHERE status IS DISTINCT FROM 'lost'
    )
    GROUP BY session_id
), spans AS (
    SELECT session_id, node_id, hostname, boot_id, container, started_at AS since,
           coalesce(ended_at, greatest(heard.time, started_at)) AS until
    FROM sessions {among}
    LEFT JOIN (SELECT session_id, max(time) AS ended_at FROM session_ends GROUP BY session_id) USING (session_id)
    LEFT JOIN heard USING (session_id)
)"""  # noqa: S608 - names of the schema


def are_rivals(one: str, other: str) -> str:
    """Return SQL that is true for rows of `spans` of one node on different machines at the same time."""
    return f"""({one}.node_id = {other}.node_id AND {on_other_machine(one, other)}
        AND {one}.since <= {other}.until AND {other}.since <= {one}.until)"""


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
