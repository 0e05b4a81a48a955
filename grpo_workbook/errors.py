"""The one error of the workbook: bad input, with the mend."""


class WorkbookError(ValueError):
    """Bad input. The message names the value that was wrong and how to mend it; the command line exits with 2."""
