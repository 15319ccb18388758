"""Models that can be asked: the engine in this process, and everything that litellm reaches.

`base.py` is the seam, `factory.py` chooses, `local.py` and `remote.py` are the two sides. Foreign errors and field names end
here.
"""
