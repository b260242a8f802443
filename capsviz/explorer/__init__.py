"""The explorer: a page in the browser. `network` opens, `look` computes, `drawing` and `page` show.

Only `page` knows Gradio.
"""
