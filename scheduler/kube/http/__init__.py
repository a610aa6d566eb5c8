"""HTTP/1.1 to one API server: short requests, streams, and a session that is lent to kopf."""
