-- What several collectors that share a store agree on. A store that one collector has to itself leaves both empty but for
-- the fence. docs/architecture.md says how they are used.

-- Who may write a session: the collector of the row with the highest epoch. Session 0 is the housekeeping.
CREATE TABLE session_owners (
    session_id BIGINT,                    -- | the session | collector
    collector VARCHAR,                    -- | random identity of one collector process | collector
    epoch BIGINT,                         -- | number of the takeover, one above that of the takeover before | collector
    taken_at TIMESTAMP                    -- UTC | when | collector
);

-- One row for each transaction of a collector, written in it; and the fence, a row without collector that every takeover
-- replaces, so that no transaction that began before a takeover can commit after it.
CREATE TABLE commits (
    collector VARCHAR,                    -- | random identity of one collector process; NULL: the fence | collector
    committed_at TIMESTAMP                -- UTC | when; of the fence: when it was replaced last | collector
);
INSERT INTO commits VALUES (NULL, NULL);
