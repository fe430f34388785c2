-- An agent that stops in good order reports when. A node is then known to have left; without it, its silence is a fault.
ALTER TABLE sessions ADD COLUMN ended_at TIMESTAMP;  -- UTC | when the agent stopped in good order; NULL: it runs, or ended without a goodbye | agent's wall clock

-- Each node as its last session found it.
CREATE OR REPLACE VIEW nodes AS
SELECT * FROM sessions
QUALIFY row_number() OVER (PARTITION BY node_id ORDER BY started_at DESC, session_id) = 1;
