"""Stop code that does not come back: a learner's endless loop must not hold the notebook."""

import ctypes
import signal
import threading
from contextlib import contextmanager


class TimeUp(BaseException):
    """Not an Exception, so that an `except Exception` inside a loop does not swallow it."""


@contextmanager
def time_limit(seconds: float):
    """Raise TimeUp inside the block after that many seconds, and again every half second until the block is left.

    In the main thread of Linux and macOS a timer signal does it, which also wakes a sleep; elsewhere an exception is
    set from another thread, which only running Python code notices. A single call that stays inside C cannot be
    stopped by either.
    """
    if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():
        with _by_signal(seconds):
            yield
    else:
        with _by_thread(seconds):
            yield


@contextmanager
def _by_signal(seconds: float):
    def stop(signum, frame):
        raise TimeUp

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds, 0.5)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@contextmanager
def _by_thread(seconds: float):
    target, left, lock = threading.get_ident(), threading.Event(), threading.Lock()

    def watch():
        wait = seconds
        while not left.wait(wait):
            with lock:
                if not left.is_set():
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(target), ctypes.py_object(TimeUp))
            wait = 0.5

    threading.Thread(target=watch, daemon=True).start()
    try:
        yield
    finally:
        with lock:
            left.set()
            # one that was set but not yet raised must not reach the code after the block
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(target), None)
