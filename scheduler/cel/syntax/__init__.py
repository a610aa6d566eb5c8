"""From text to a tree: lexer, parser, macros."""
