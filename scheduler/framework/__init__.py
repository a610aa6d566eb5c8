"""The interfaces for plugins (`interface`, `handle`), and the code that runs plugins (`profile`, `runtime`)."""
