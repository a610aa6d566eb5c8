"""Device pools, allocated devices, the claim tracker, kinds of devices and nodes, and CEL selectors on devices."""
