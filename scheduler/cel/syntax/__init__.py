"""Parsing of a text to a tree: lexer, parser, macros."""
