"""What is selected from a value, in generated source."""

from __future__ import annotations

from scheduler.cel.fast.writer import INT, MAP, Term, Writer


def item(write: Writer, holder: Term, key: Term) -> Term:
    """Texts select only from maps, and what is no map says so itself."""
    if key.kind is not None and key.kind.name == "string":
        return _picked(write, holder, key)
    if _is_list(holder) and key.kind == INT:
        return _element(write, holder, write.named(key))
    return write.fallible(f"picked({holder.text}, {key.text})")


def _is_list(term: Term) -> bool:
    return term.kind is not None and term.kind.name == "list"


def _element(write: Writer, holder: Term, key: Term) -> Term:
    kind = holder.kind.element if holder.kind is not None else None
    if write.tells:
        holder = write.named(holder)
        write.fails(f"not 0 <= {key.text} < len({holder.text})", f"f'index out of bounds: {{{key.text}}}'")
    elif not key.is_constant or key.value < 0:
        write.doubt(f"{key.text} < 0")
    text = f"{holder.text}[{key.text}]"
    return write.let(text, kind) if write.counts else Term(text, kind)


def _picked(write: Writer, holder: Term, key: Term) -> Term:
    if not write.tells:
        return write.fallible(f"{holder.text}[{key.text}]")
    holder = write.named(holder)
    if holder.kind == MAP and key.is_constant:
        write.fails(f"{key.text} not in {holder.text}", repr(f"no such key: {key.value}"))
        return write.let(f"{holder.text}[{key.text}]")
    made = write.new()
    with write.block("try:"):
        write.line(f"{made} = {holder.text}[{key.text}]")
    with write.block("except Exception:"):
        write.attempt(f"{made} = missed({holder.text}, {key.text})")
    return Term(made, is_name=True)


def perhaps(write: Writer, holder: Term, key: Term) -> Term:
    """An optional of it."""
    if _is_list(holder) and key.kind == INT:
        held, at = write.named(holder).text, write.named(key).text
        found = write.let(f"{held}[{at}] if 0 <= {at} < len({held}) else MISSING")
    else:
        found = Term(write.new(), is_name=True)
        write.attempt(f"{found.text} = found({holder.text}, {key.text})")
    made = write.new()
    with write.block(f"if {found.text} is MISSING:"):
        write.line(f"{made} = NONE")
    with write.block("else:"):
        write.charge(1)
        write.line(f"{made} = Optional({found.text})")
    return Term(made, is_name=True)
