"""Several server processes at one port: workers, and the supervisor between them.

    part.py       the part of a machine that a worker has
    hub.py        the supervisor's end: who is there, what all are asked, what all have to do in one order
    handing.py    connections over HTTP, accepted by the supervisor and handed to workers
    channel.py    lines of JSON between the supervisor and a worker
    member.py     a worker's end
    counts.py     what workers count, as numbers, and their sums
    shared.py     a repository, regions and reports of which all workers have the same

docs/serving-processes.md says why it is done so.
"""
