"""Every prompt of Pointsman, as DSPy signatures, with one inventory. No prompt text lives anywhere else."""
