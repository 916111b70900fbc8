"""How rows find their partners when names alone do not say it.

By default two rows belong together when their names are equal (:mod:`msprobe_nb.comparison.match`).
Here are the other ways, each from a small module of its own:

=============  ======================================================================
`fuzzy`        the sequence of calls is aligned; call numbers and class names may differ
`cells`        module names are rewritten: ``Cell`` to ``Module``, and by a user's table
`apis`         MindSpore API names are rewritten to those of PyTorch
`layers`       calls are paired by their place in the module tree
`rows`         a user lists the pairs
=============  ======================================================================
"""

from msprobe_nb.comparison.pairing.options import Pairing

__all__ = ["Pairing"]
