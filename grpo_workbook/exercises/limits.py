"""Stop code that does not return, because a learner's endless loop must not block the notebook."""

import ctypes
import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType

AGAIN = 0.05  # seconds between further attempts, if the code caught the first one


class TimeUp(BaseException):
    """Not an Exception, so that an `except Exception` inside a loop does not swallow it."""


def within(seconds: float, function: Callable, *arguments):
    """The result of function(*arguments). Raises TimeUp after so many `seconds` (above 0).

    In the main thread of Linux and macOS it uses a timer signal, which also ends a sleep; elsewhere
    another thread sets an exception, which only running Python code notices. A bare `except:` does
    not prevent either (`_Stop`). A single long call inside C cannot be stopped.
    """
    if hasattr(signal, "setitimer") and threading.current_thread() is threading.main_thread():
        return _by_signal(seconds, function, arguments)
    return _by_thread(seconds, function, arguments)


class _Stop:
    """Ends a function that was called from the frame `base`, whatever the function catches.

    An exception inside a `try` with a bare `except:` is always caught. So the second and further
    attempts trace one of the function's frames and raise TimeUp at its k-th instruction from there:
    each time in another frame or at a later instruction, until one is outside of every `try`, such
    as the loop's end.
    """

    def __init__(self, base: FrameType):
        self.base, self.attempts, self.left = base, 0, 0
        self.target: FrameType | None = None
        self.tracer_before = sys.gettrace()

    def attempt(self, frame: FrameType | None) -> bool:
        """Prepare the next TimeUp in the thread to stop; False if the function is not in it."""
        frames = []
        while frame is not None and frame is not self.base:
            frames.append(frame)
            frame = frame.f_back
        frames = [f for f in frames if f.f_code.co_filename != __file__]
        if frame is None or not frames:
            return False
        self.attempts += 1
        if self.attempts > 1:
            if self.target is not None:
                self.target.f_trace = None
            self.left, place = divmod(self.attempts, len(frames))
            self.target = frames[place]
            self.target.f_trace, self.target.f_trace_opcodes = self._trace, True
            sys.settrace(lambda *_: None)  # new frames are not traced
        return True

    def _trace(self, frame: FrameType, event: str, argument):
        if event == "opcode" and frame is self.target:
            self.left -= 1
            if self.left <= 0:
                raise TimeUp  # which also ends the tracing, up to the next attempt
        return self._trace

    def ended(self) -> None:
        if self.attempts:
            sys.settrace(self.tracer_before)
            if self.target is not None:
                self.target.f_trace = None


def _by_signal(seconds: float, function: Callable, arguments: tuple):
    stop = _Stop(sys._getframe())

    def on_alarm(signum, frame):
        if stop.attempt(frame):
            raise TimeUp

    before = signal.signal(signal.SIGALRM, on_alarm)
    timer_before = signal.setitimer(signal.ITIMER_REAL, seconds, AGAIN)
    try:
        result = function(*arguments)
    finally:  # no TimeUp comes here: on_alarm raises only while the function runs
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(
            signal.ITIMER_REAL, *timer_before
        )  # of a `within` around this one, if there is one
        stop.ended()
    if stop.attempts:  # it caught the exception, but then returned
        raise TimeUp
    return result


def _by_thread(seconds: float, function: Callable, arguments: tuple):
    stop = _Stop(sys._getframe())
    target, left, lock = threading.get_ident(), threading.Event(), threading.Lock()

    class Late(TimeUp):
        """Calls `stop` in the thread to stop, where Python creates this exception."""

        def __init__(self):
            stop.attempt(sys._getframe(1))

    def watch():
        wait = seconds
        while not left.wait(wait):
            with lock:
                if not left.is_set():
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(
                        ctypes.c_ulong(target), ctypes.py_object(Late)
                    )
            wait = AGAIN

    threading.Thread(target=watch, daemon=True).start()
    try:
        result = function(*arguments)
    finally:
        with lock:
            left.set()
            # an exception that is set but not yet raised must not reach the code after the block
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(target), None)
        stop.ended()
    if stop.attempts:
        raise TimeUp
    return result
