"""The sessions whose samples belong to a run: they distinguish two machines that have one identity.

A run's own agent processes name it in their rows. Others may have sampled the same machine, such as the node's agent
beside a pod that measures itself, or an agent that was restarted: their samples count too. Whether two sessions of
a node are of one machine, their boot ids decide, or where one has none their hostnames, outside containers.
"""


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
