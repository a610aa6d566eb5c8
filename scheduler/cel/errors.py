"""The errors of expressions."""


class CelError(Exception):
    """The text is upstream's, without the prefix that names the expression or the device."""


class CompileError(CelError):
    """The expression is not well-formed or not well-typed. The text is what follows `compilation failed: `."""


class EvalError(CelError):
    """This value cannot be computed. `&&`, `||`, `all` and `exists` may absorb it."""


class NoSuchKey(EvalError):
    """A map or an object does not have the key."""


class CostExceeded(CelError):
    """A limit of the evaluation is reached. It is never absorbed."""
