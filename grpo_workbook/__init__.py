"""Helpers of the GRPO Workbook: one module, one idea. Importing this package loads neither torch nor TRL."""

__version__ = "0.1.0"
