-- A session, and a run on a node, have the first description that the store got of them. A second one, which earlier
-- collectors stored too, doubled every run in the view.
DELETE FROM sessions WHERE rowid NOT IN (SELECT min(rowid) FROM sessions GROUP BY session_id);
DELETE FROM run_requests WHERE rowid NOT IN (SELECT min(rowid) FROM run_requests GROUP BY run_id, node_id);
