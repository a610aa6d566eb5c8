"""API objects as they are decoded, frozen, and the rules on one object: quantities, selectors, affinity, CSI translation."""
