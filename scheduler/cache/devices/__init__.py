"""Device pools, their use, the claim tracker, kinds of devices and nodes, CEL selectors on devices."""
