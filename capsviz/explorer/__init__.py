"""The explorer: a page in the browser. `network` opens, `look` computes, `drawing` and `page` show.

Gradio is known to `page`, `layout`, `handlers` and `serve` alone.
"""
