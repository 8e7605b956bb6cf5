-- A wait finds what was published by transactions still open when it asked, however many events came before. No key is
-- an empty one here, so that one equality serves both.
create index x_job_events_xid_idx on /* schema */x_job_events (name, coalesce(correlation_key, ''), xid);
