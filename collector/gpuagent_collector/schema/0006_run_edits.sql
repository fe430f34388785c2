-- Corrections of runs by operators, one row an edit; NULL leaves a column as it is.
CREATE TABLE run_edits (
    run_id VARCHAR,                       -- | the run | collector run edit
    time TIMESTAMP,                       -- UTC | when it was edited | collector
    workload VARCHAR,                     -- | another name of the program | --name
    labels JSON,                          -- | all labels after the edit, an object of strings | --label
    note VARCHAR,                         -- | a remark; '' removes it | --note
    is_excluded BOOLEAN                   -- | true keeps it out of comparisons | --exclude, --include
);

-- Each run: what was asked, and how it stands as a whole. Of several nodes it has succeeded when it has on all of them.
CREATE OR REPLACE VIEW runs AS
WITH parts AS MATERIALIZED (
    SELECT *, {'status': status, 'exit_code': exit_code, 'reason': reason} AS state FROM run_parts
), together AS (  -- the runs of several nodes
    SELECT run_id, min({'time': time, 'node_id': node_id}) AS first, max(nodes) AS nodes
    FROM run_requests WHERE nodes > 1 GROUP BY run_id
), whole AS (
    SELECT
        run_id,
        any_value(first) AS first,
        any_value(nodes) AS nodes,
        count(node_id) AS present,
        count(*) FILTER (state.status IN ('queued', 'running')) AS open,
        bool_and(state.status = 'queued') AS waits,
        bool_or(times > 1) AS is_twofold,
        -- A part fails because another was lost or stopped, not the other way: so these tell more.
        arg_max(state, {
            'rank': list_position(['succeeded', 'failed', 'cancelled', 'timed_out', 'lost'], state.status),
            'before': -epoch_us(ended_at)
        }) FILTER (node_id IS NOT NULL) AS worst,
        any_value(state) FILTER (node_id IS NULL) AS missing,
        min(started_at) AS started_at,
        max(ended_at) FILTER (node_id IS NOT NULL) AS ended_at
    FROM together LEFT JOIN parts USING (run_id) GROUP BY run_id
), run AS (
    SELECT request.*, part.state, part.started_at, part.ended_at
    FROM run_requests AS request LEFT JOIN parts AS part
        ON part.run_id = request.run_id AND part.node_id IS NOT DISTINCT FROM request.node_id
    WHERE coalesce(nodes, 1) = 1
    UNION ALL
    SELECT
        request.*,
        CASE
            WHEN open > 0 THEN {'status': if(waits, 'queued', 'running'), 'exit_code': NULL, 'reason': NULL}
            WHEN worst.status <> 'succeeded' THEN worst
            WHEN is_twofold THEN {'status': 'failed', 'exit_code': NULL, 'reason': 'a node took part in it twice: each run needs its own --job'}
            WHEN present >= whole.nodes THEN worst
            ELSE coalesce(missing, {'status': 'running', 'exit_code': NULL, 'reason': NULL})
        END,
        whole.started_at,
        whole.ended_at
    FROM run_requests AS request JOIN whole
        ON whole.run_id = request.run_id AND first = {'time': request.time, 'node_id': request.node_id}
), edit AS (  -- the last value of each column
    SELECT
        run_id,
        arg_max(workload, time) AS workload,
        arg_max(labels, time) AS labels,
        arg_max(note, time) AS note,
        arg_max(is_excluded, time) AS is_excluded
    FROM run_edits GROUP BY run_id
)
SELECT
    run.run_id,                           -- | the run's identity | agent
    run.experiment,                       -- | groups the runs of one question | agent
    session.platform,                     -- | the name the user gave this kind of place | sessions
    coalesce(edit.workload, run.workload) AS workload, -- | built-in workload, or the command's program | run_requests, run_edits
    run.environment,                      -- | bare, docker, podman, … | run_requests
    run.image,                            -- | container image; NULL where there is none | run_requests
    run.interference,                     -- | what deliberately ran beside it; 'none' | run_requests
    run.limits,                           -- | what it may use of the node, and changes of that; 'none' | run_requests
    run.repeat,                           -- | number of the repeat, from 1 | run_requests
    run.state.status AS status, -- | queued, running, succeeded, failed, cancelled, timed_out, lost | run_states
    run.state.exit_code AS exit_code, -- | the program's exit code, negative for a signal; of several nodes, where it ended worst | run_states
    run.state.reason AS reason, -- | why it did not succeed | run_states
    run.time AS queued_at,                -- UTC | when it was queued | run_requests
    run.started_at,                       -- UTC | when its program started; of several nodes, the first | run_states
    CASE WHEN run.state.status NOT IN ('queued', 'running') THEN run.ended_at END AS ended_at, -- UTC | when it ended; of several nodes, the last | run_states
    run.parameters,                       -- | the workload's parameters, an object | run_requests
    run.command,                          -- | the program and its arguments, an array; of several nodes, the first's | run_requests
    coalesce(edit.labels, run.labels) AS labels, -- | the run's labels, an object | run_requests, run_edits
    run.timeout_seconds,                  -- s | when it would be stopped | run_requests
    coalesce(run.nodes, 1) AS nodes,      -- | how many nodes run it together; run_parts has them | run_requests
    run.session_id,                       -- | the agent process; of several nodes, the first's | run_requests
    run.node_id,                          -- | the node it started on; of several, the first | run_requests
    edit.note AS note,                    -- | a remark of an operator | run_edits
    coalesce(edit.is_excluded, false) AS is_excluded -- | an operator keeps it out of comparisons | run_edits
FROM run
LEFT JOIN sessions AS session ON session.session_id = run.session_id
LEFT JOIN edit ON edit.run_id = run.run_id;
