-- A wait finds what was published by transactions still open when it asked, however many events came before.
create index x_job_events_xid_idx on /* schema */x_job_events (name, correlation_key, xid);
