"""Rules of a server for the parts of manifests."""
