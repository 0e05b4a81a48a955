"""The one error of the workbook: bad input, with the mend. And another's error, in one line of ours."""


class WorkbookError(ValueError):
    """Bad input. The message names the value that was wrong and how to mend it; the command line exits with 2."""


def first_line(error: BaseException, most: int = 200) -> str:
    """The first line of what an exception says, at most `most` characters; its type's name where it says nothing."""
    return (str(error).strip() or type(error).__name__).splitlines()[0][:most]
