"""The explorer: a page in the browser on which an image and a network can be changed by hand.

`networks` opens, `images` brings an image, `settings` says what the controls and the link hold.
`look` computes, `drawing` and `panels` write HTML, `files` draws figures as commands do. `layout`
places the parts of the page, `page` says what they do, `serve` serves it: only these three know
Gradio.
"""
