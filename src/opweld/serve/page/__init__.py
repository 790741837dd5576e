"""A page that shows the models of a server and lets people try them.

interface.py     what it asks of the server: the list of models, and reports; under /page, which the guard covers
listing.py       the list
files.py         the page itself: files that hold nothing of the models, and that need no key
reports.py       `opweld report` of a model's artifact, made in a process of its own
static/          HTML, CSS and JavaScript, without a build step

Whatever else it does, it does as any client: models are tried by the protocols, what it counts is read from /metrics.
"""
