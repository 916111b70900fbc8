"""What people look at: widgets, plots and reports.

Nothing is computed here that a script could want; every number comes from a result object.
"""
