"""The explorer: a web page on which an image and a network can be changed interactively.

`networks` opens networks, `images` reads images, and `settings` defines the controls and the link.
`look` computes, `drawing` and `panels` write HTML, and `files` draws figures as commands do.
`layout` places the parts of the page, `page` handles their events, and `serve` serves it: only
these three use Gradio.
"""
