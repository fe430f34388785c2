-- Ends of sessions whose agents stopped in good order. A node whose last session is here has left; without a row, silence is a fault.
CREATE TABLE session_ends (
    session_id BIGINT,                    -- | the agent process | agent
    node_id BIGINT,                       -- | the node | agent
    time TIMESTAMP                        -- UTC | when the agent stopped in good order | agent's wall clock
);

-- Each node as its last session found it.
CREATE OR REPLACE VIEW nodes AS
SELECT
    *,
    (SELECT max(time) FROM session_ends WHERE session_ends.session_id = sessions.session_id) AS ended_at -- UTC | when its last agent stopped in good order; NULL: it runs, or ended without a goodbye | session_ends
FROM sessions
QUALIFY row_number() OVER (PARTITION BY node_id ORDER BY started_at DESC, session_id) = 1;
