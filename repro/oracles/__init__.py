"""Oracles: each looks at one thing that a run did and reports a :class:`repro.outcome.Finding`.

An oracle that could not look says so (``blind``); silence is never a pass. Behaviour comes before names:
``sparsity``, ``memory``, ``numerics`` and ``state`` judge what happened, ``kernels`` is a second witness by name.
"""
