-- How each run stands on each of its nodes. What an agent says of an end outranks what the collector concluded.
CREATE OR REPLACE VIEW run_parts AS
SELECT
    run_id,                               -- | the run | run_states
    node_id,                              -- | the node; NULL: the nodes that never said anything | run_states
    session_id,                           -- | the agent process that spoke of it last | run_states
    state.status AS status, -- | as in runs, on this node | run_states
    state.exit_code AS exit_code, -- | the program's exit code there, negative for a signal | run_states
    state.reason AS reason, -- | why it did not succeed there | run_states
    started_at,                           -- UTC | when its program started there | run_states
    ended_at,                             -- UTC | when it ended there | run_states
    times                                 -- | how often it was queued there; more than once is wrong | run_states
FROM (
    SELECT
        run_id,
        node_id,
        arg_max(session_id, time) AS session_id,
        -- As one: arg_max passes over NULL, and would give the reason of an earlier state.
        arg_max({'status': status, 'exit_code': exit_code, 'reason': reason}, ranking) AS state,
        -- An agent first reports the launch, and once it knows it, the begin of the program itself.
        max(time) FILTER (status = 'running') AS started_at,
        arg_max(time, ranking) FILTER (status NOT IN ('queued', 'running')) AS ended_at,
        count(*) FILTER (status = 'queued') AS times
    FROM (
        SELECT *, {'stage': CASE status WHEN 'queued' THEN 0 WHEN 'running' THEN 1 WHEN 'lost' THEN 2 ELSE 3 END, 'time': time} AS ranking
        FROM run_states
    )
    GROUP BY run_id, node_id
);
