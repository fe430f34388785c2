-- What of each table of samples in a file has been sorted: the latest time counts. Written in the same transaction as
-- the sorted rows.
CREATE TABLE sortings (
    table_name VARCHAR,                   -- | the table | collector
    until TIMESTAMP,                      -- UTC | samples before this time have been sorted; later arrivals are not | collector
    sorted_at TIMESTAMP                   -- UTC | when | collector
);
