"""The page /ui (docs/ui.md): its answers, the data behind them, and the document."""
