"""One process: connections, informers, leader election, endpoints, supervision."""
